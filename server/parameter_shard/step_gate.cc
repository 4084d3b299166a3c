#include "server/parameter_shard/step_gate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/gradient_norm.h"

namespace parley {
namespace {

// Everything that a repetition of a Complete must say again.
std::string Content(CompleteRequest request) {
  request.clear_header();
  return request.SerializeAsString();
}

// Who of `counted` declared no gradient for what, by slice, contributor, part.
template <class Progresses>
std::vector<NoGradient> NoneOf(const std::vector<uint32_t>& counted, const Progresses& progress) {
  std::map<uint32_t, std::vector<std::pair<uint32_t, uint32_t>>> by_slice;
  for (const uint32_t contributor : counted) {
    for (const auto& [part, complete] : progress.at(contributor).parts) {
      for (const uint32_t slice : complete.none()) {
        by_slice[slice].emplace_back(contributor, part);
      }
    }
  }
  std::vector<NoGradient> none;
  for (auto& [slice, parts] : by_slice) {
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    const bool only_part_0 =
        std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.second == 0; });
    NoGradient& entry = none.emplace_back();
    entry.set_slice(slice);
    for (const auto& [contributor, part] : parts) {
      entry.add_contributors(contributor);
      if (!only_part_0) entry.add_parts(part);
    }
  }
  return none;
}

}  // namespace

void StepGate::Open(uint64_t step, Contributors contributors, std::set<uint32_t> without_data) {
  step_ = step;
  attempt_ = 0;
  contributors_ = std::move(contributors);
  without_data_ = std::move(without_data);
  StartAttempt();
}

void StepGate::StartAttempt() {
  progress_.clear();
  complete_.clear();
  departed_.clear();
  closing_ = false;
  counted_.clear();
  close_replies_.clear();
}

std::vector<std::pair<uint32_t, uint32_t>> StepGate::MissingParts() const {
  std::vector<std::pair<uint32_t, uint32_t>> missing;
  for (const auto& [contributor, parts] : contributors_) {
    const auto it = progress_.find(contributor);
    for (uint32_t part = 0; part < parts; ++part) {
      if (it == progress_.end() || it->second.parts.count(part) == 0) {
        missing.emplace_back(contributor, part);
      }
    }
  }
  return missing;
}

absl::StatusOr<StepGate::Output> StepGate::Complete(const CompleteRequest& request) {
  const uint32_t contributor = request.share().contributor();
  const auto parts = contributors_.find(contributor);
  if (parts == contributors_.end() || request.part() >= parts->second) {
    return absl::InvalidArgumentError(absl::StrCat("part ", request.part(), " of contributor ",
                                                   contributor, " is not in step ", step_));
  }
  const double weight = request.share().weight();
  if (!std::isfinite(weight) || weight < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("contributor ", contributor, " gives the impossible weight ", weight));
  }
  for (const auto& [other, progress] : progress_) {
    for (const auto& [part, complete] : progress.parts) {
      if (complete.data_epoch() != request.data_epoch()) {
        return absl::InvalidArgumentError(
            absl::StrCat("contributor ", contributor, " is in data epoch ", request.data_epoch(),
                         ", contributor ", other, " in ", complete.data_epoch()));
      }
    }
  }
  const auto [it, is_new] = progress_[contributor].parts.emplace(request.part(), request);
  if (!is_new) {
    if (Content(it->second) != Content(request)) {
      return absl::InvalidArgumentError(absl::StrCat("part ", request.part(), " of contributor ",
                                                     contributor, " completed step ", step_,
                                                     " before with other contents"));
    }
    return Output();
  }
  if (progress_[contributor].parts.size() == parts->second) complete_.push_back(contributor);
  return DecideIfComplete();
}

bool StepGate::TakesPart(uint32_t contributor) const {
  return contributors_.count(contributor) != 0 && departed_.count(contributor) == 0;
}

bool StepGate::IsComplete(uint32_t contributor) const {
  return std::find(complete_.begin(), complete_.end(), contributor) != complete_.end();
}

bool StepGate::HasQuorum() const {
  const size_t all = contributors_.size();
  const size_t least = all > options_.backup ? all - options_.backup : 1;
  if (complete_.size() < least) return false;
  size_t with_data = 0;
  for (const auto& [contributor, parts] : contributors_) {
    with_data += 1 - without_data_.count(contributor);
  }
  size_t complete_with_data = 0;
  for (const uint32_t contributor : complete_) {
    complete_with_data += 1 - without_data_.count(contributor);
  }
  return complete_with_data >= std::min(with_data, least);
}

StepGate::Output StepGate::DecideIfComplete() {
  Output output;
  if (closing_ || complete_.empty() || !HasQuorum()) return output;

  counted_ = complete_;
  std::sort(counted_.begin(), counted_.end());
  if (!options_.AsksForNorms()) {
    output.verdict = MakeVerdict(Verdict::APPLY);
    return output;
  }
  closing_ = true;
  CloseRequest& close = output.close.emplace();
  const Verdict verdict = MakeVerdict(Verdict::APPLY);
  close.set_step(step_);
  close.set_attempt(attempt_);
  close.mutable_contributors()->Add(counted_.begin(), counted_.end());
  close.set_total_weight(verdict.total_weight());
  *close.mutable_none() = verdict.none();
  return output;
}

Verdict StepGate::MakeVerdict(Verdict::Outcome outcome) const {
  Verdict verdict = VerdictOfNobody(outcome);
  double total = 0;
  for (const uint32_t contributor : counted_) {
    // Weight, samples and ranges are said by part 0; each rank of a node group has samples and a
    // loss of its own.
    const std::map<uint32_t, CompleteRequest>& parts = progress_.at(contributor).parts;
    const CompleteRequest& complete = parts.at(0);
    Share& share = *verdict.add_shares();
    share = complete.share();
    double loss_sum = 0;
    for (const auto& [part, request] : parts) loss_sum += request.share().loss_sum();
    share.set_loss_sum(loss_sum);
    verdict.set_data_epoch(complete.data_epoch());
    total += complete.share().weight();
  }
  verdict.set_total_weight(total);
  if (options_.reference_weight > 0) verdict.set_rate_scale(total / options_.reference_weight);
  for (NoGradient& entry : NoneOf(counted_, progress_)) *verdict.add_none() = std::move(entry);
  return verdict;
}

StepGate::Output StepGate::OnCloseReply(uint32_t shard, uint64_t step, uint32_t attempt,
                                        const CloseReply& reply, const ClusterView& view) {
  Output output;
  if (!closing_ || step != step_ || attempt != attempt_) return output;
  close_replies_.emplace(shard, reply);
  if (close_replies_.size() < options_.shards) return output;

  bool finite = true;
  std::vector<SliceNorms> norms;
  for (const auto& [ordinal, answer] : close_replies_) {
    finite = finite && answer.finite();
    norms.insert(norms.end(), answer.norms().begin(), answer.norms().end());
  }
  const bool skip = options_.skip_nonfinite && !finite;
  Verdict verdict = MakeVerdict(skip ? Verdict::SKIP : Verdict::APPLY);
  if (options_.clip) {
    verdict.set_gradient_norm(GlobalNorm(view, std::move(norms)));
    if (!skip) verdict.set_clip_scale(ClipScale(verdict.gradient_norm(), options_.clip_norm));
  }
  output.verdict = std::move(verdict);
  return output;
}

Verdict StepGate::VerdictOfNobody(Verdict::Outcome outcome) const {
  Verdict verdict;
  verdict.set_step(step_);
  verdict.set_attempt(attempt_);
  verdict.set_outcome(outcome);
  verdict.set_rate_scale(1);
  verdict.set_clip_scale(1);
  return verdict;
}

StepGate::Output StepGate::Change(const std::vector<Departure>& gone) {
  bool retry = false;
  for (const Departure& departure : gone) {
    const uint32_t contributor = departure.contributor;
    if (contributors_.count(contributor) == 0) continue;
    if (IsComplete(contributor)) {
      // Once it is out of the step, whoever comes in its place comes with the next one.
      bool& awaited = departed_.emplace(contributor, departure.awaited).first->second;
      awaited = awaited && departure.awaited;
      continue;
    }
    // Other members of it may have completed their parts already, and would not do it again.
    const bool begun = departure.awaited && progress_.erase(contributor) != 0;
    retry = retry || departure.left_something || begun;
    if (departure.awaited) continue;
    progress_.erase(contributor);
    contributors_.erase(contributor);
  }
  if (closing_) return Output();

  Output output;
  if (!retry && !contributors_.empty()) return DecideIfComplete();
  Contributors staying = contributors_;
  for (const auto& [contributor, awaited] : departed_) {
    if (!awaited) staying.erase(contributor);
  }
  if (staying.empty()) {
    // Nobody has the data of this step any more; those who have come since begin with the next.
    output.verdict = VerdictOfNobody(Verdict::SKIP);
    return output;
  }
  output.verdict = VerdictOfNobody(Verdict::RETRY);
  ++attempt_;
  contributors_ = std::move(staying);
  StartAttempt();
  return output;
}

}  // namespace parley
