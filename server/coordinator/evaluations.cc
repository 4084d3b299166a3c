#include "server/coordinator/evaluations.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/coordinator/first_cause.h"

namespace parley {
namespace {

void AddTo(Evaluation& sum, const Evaluation& part) {
  sum.set_samples(sum.samples() + part.samples());
  sum.set_loss_sum(sum.loss_sum() + part.loss_sum());
  sum.set_correct(sum.correct() + part.correct());
  sum.set_correct_top5(sum.correct_top5() + part.correct_top5());
  sum.set_left_out(sum.left_out() + part.left_out());
}

}  // namespace

void Evaluations::Start(uint32_t workers, uint64_t test_samples) {
  workers_ = workers;
  test_samples_ = test_samples;
}

absl::Status Evaluations::Add(const Member& worker, const Evaluation& part) {
  const std::string who =
      absl::StrCat(Describe(worker), ", evaluation of version ", part.version(), ": ");
  if (test_samples_ == 0) {
    return absl::InvalidArgumentError(absl::StrCat(who, "this job has no test set"));
  }
  if (part.correct() > part.samples() || part.correct_top5() > part.samples() ||
      part.samples() > test_samples_) {
    return absl::InvalidArgumentError(absl::StrCat(who, "more samples than there are"));
  }
  const double counted = static_cast<double>(part.samples()) - part.left_out();
  if (!(part.left_out() >= 0 && static_cast<double>(part.correct()) <= counted &&
        static_cast<double>(part.correct_top5()) <= counted)) {
    return absl::InvalidArgumentError(absl::StrCat(who, "leaves out ", part.left_out(), " of ",
                                                   part.samples(), " samples, and ", part.correct(),
                                                   " and ", part.correct_top5(), " are right"));
  }
  if (whole_.count(part.version()) != 0 || given_up_.count(part.version()) != 0) {
    return absl::OkStatus();
  }
  // Only what fits becomes part of the state.
  const auto found = open_.find(part.version());
  Parts parts = found == open_.end() ? Parts{} : found->second;
  const auto [mine, added] = parts.by_ordinal.emplace(worker.ordinal(), Part{worker.id(), part});
  if (!added) {
    // What another worker reported from this place counts.
    if (mine->second.member != worker.id() ||
        mine->second.numbers.SerializeAsString() == part.SerializeAsString()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(who, "reported before, with other numbers"));
  }
  const Evaluation& first = parts.by_ordinal.begin()->second.numbers;
  if (part.epoch() != first.epoch() || part.classes() != first.classes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "another epoch or kind of loss than other workers report"));
  }
  AddUp(parts);
  const uint64_t samples = parts.sum.samples();
  const bool all = parts.by_ordinal.size() == workers_;
  if (fixed_ && (samples > test_samples_ || (all && samples != test_samples_))) {
    return absl::InvalidArgumentError(absl::StrCat(who, "the parts of ", parts.by_ordinal.size(),
                                                   " of ", workers_, " workers have ", samples,
                                                   " samples, the test set ", test_samples_));
  }
  ++parts_;
  ++open_parts_;
  CloseIfWhole(open_.insert_or_assign(part.version(), std::move(parts)).first);
  GiveUpOld();
  return absl::OkStatus();
}

void Evaluations::CloseIfWhole(std::map<uint64_t, Parts>::iterator found) {
  if (found->second.sum.samples() != test_samples_) return;
  whole_[found->first] = std::move(found->second.sum);
  open_parts_ -= found->second.by_ordinal.size();
  open_.erase(found);
}

void Evaluations::GiveUpOld() {
  // All before this one have as many later ones that are whole.
  const uint64_t first =
      whole_.size() < kLaterWhole ? 0 : std::prev(whole_.end(), kLaterWhole)->first;
  while (!open_.empty() && (open_.begin()->first < first || open_parts_ > kMostParts)) {
    given_up_.insert(open_.begin()->first);
    open_parts_ -= open_.begin()->second.by_ordinal.size();
    open_.erase(open_.begin());
  }
}

void Evaluations::RollBack(uint64_t version) {
  open_.erase(open_.upper_bound(version), open_.end());
  open_parts_ = 0;
  for (const auto& [open, parts] : open_) open_parts_ += parts.by_ordinal.size();
  whole_.erase(whole_.upper_bound(version), whole_.end());
  given_up_.erase(given_up_.upper_bound(version), given_up_.end());
}

void Evaluations::AddUp(Parts& parts) {
  parts.sum = parts.by_ordinal.begin()->second.numbers;
  for (auto it = std::next(parts.by_ordinal.begin()); it != parts.by_ordinal.end(); ++it) {
    AddTo(parts.sum, it->second.numbers);
  }
}

void Evaluations::Write(CoordinatorState& state) const {
  for (const auto& [version, sum] : whole_) *state.add_evaluations() = sum;
  state.mutable_evaluations_given_up()->Assign(given_up_.begin(), given_up_.end());
  for (const auto& [version, parts] : open_) {
    for (const auto& [ordinal, part] : parts.by_ordinal) {
      EvaluationPart* logged = state.add_evaluation_parts();
      logged->set_worker(ordinal);
      logged->set_member(part.member);
      *logged->mutable_part() = part.numbers;
    }
  }
}

void Evaluations::Read(const CoordinatorState& state) {
  for (const Evaluation& sum : state.evaluations()) whole_[sum.version()] = sum;
  given_up_ = {state.evaluations_given_up().begin(), state.evaluations_given_up().end()};
  for (const EvaluationPart& logged : state.evaluation_parts()) {
    const bool added =
        open_[logged.part().version()]
            .by_ordinal.insert_or_assign(logged.worker(), Part{logged.member(), logged.part()})
            .second;
    if (added) ++open_parts_;
    ++parts_;
  }
  for (auto it = open_.begin(); it != open_.end();) {
    const auto found = it++;
    AddUp(found->second);
    CloseIfWhole(found);
  }
  GiveUpOld();
}

std::vector<Evaluation> Evaluations::Whole() const {
  std::vector<Evaluation> whole;
  for (const auto& [version, sum] : whole_) whole.push_back(sum);
  return whole;
}

std::vector<uint64_t> Evaluations::Incomplete() const {
  std::vector<uint64_t> versions = {given_up_.begin(), given_up_.end()};
  for (const auto& [version, parts] : open_) versions.push_back(version);
  std::sort(versions.begin(), versions.end());
  return versions;
}

}  // namespace parley
