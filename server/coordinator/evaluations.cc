#include "server/coordinator/evaluations.h"

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
  // Only what fits becomes part of the state.
  const auto found = versions_.find(part.version());
  Parts parts = found == versions_.end() ? Parts{} : found->second;
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
  versions_[part.version()] = std::move(parts);
  ++parts_;
  return absl::OkStatus();
}

void Evaluations::AddUp(Parts& parts) {
  parts.sum = parts.by_ordinal.begin()->second.numbers;
  for (auto it = std::next(parts.by_ordinal.begin()); it != parts.by_ordinal.end(); ++it) {
    AddTo(parts.sum, it->second.numbers);
  }
}

void Evaluations::Write(CoordinatorState& state) const {
  for (const auto& [version, parts] : versions_) {
    for (const auto& [ordinal, part] : parts.by_ordinal) {
      EvaluationPart* logged = state.add_evaluation_parts();
      logged->set_worker(ordinal);
      logged->set_member(part.member);
      *logged->mutable_part() = part.numbers;
    }
  }
}

void Evaluations::Read(const CoordinatorState& state) {
  for (const EvaluationPart& logged : state.evaluation_parts()) {
    versions_[logged.part().version()].by_ordinal[logged.worker()] = {logged.member(),
                                                                      logged.part()};
    ++parts_;
  }
  for (auto& [version, parts] : versions_) AddUp(parts);
}

std::vector<Evaluation> Evaluations::Whole() const {
  std::vector<Evaluation> whole;
  for (const auto& [version, parts] : versions_) {
    if (parts.sum.samples() == test_samples_) whole.push_back(parts.sum);
  }
  return whole;
}

std::vector<uint64_t> Evaluations::Incomplete() const {
  std::vector<uint64_t> versions;
  for (const auto& [version, parts] : versions_) {
    if (parts.sum.samples() != test_samples_) versions.push_back(version);
  }
  return versions;
}

}  // namespace parley
