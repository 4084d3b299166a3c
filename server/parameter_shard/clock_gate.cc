#include "server/parameter_shard/clock_gate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/job/data_division.h"

namespace parley {
namespace {

std::vector<SampleRange> Ranges(const google::protobuf::RepeatedPtrField<SampleRange>& ranges) {
  return {ranges.begin(), ranges.end()};
}

bool SameRanges(const google::protobuf::RepeatedPtrField<SampleRange>& a,
                const google::protobuf::RepeatedPtrField<SampleRange>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SampleRange& x, const SampleRange& y) {
                      return x.begin() == y.begin() && x.end() == y.end();
                    });
}

std::string Content(CompleteRequest request) {
  request.clear_header();
  return request.SerializeAsString();
}

}  // namespace

ClockGate::ClockGate(const JobConfig& job, uint64_t training_samples, uint64_t version,
                     DataPosition position)
    : job_(job),
      training_samples_(training_samples),
      nominal_(NominalSamples(job)),
      version_(version),
      position_(std::move(position)),
      last_barrier_(version) {}

void ClockGate::Enter(uint32_t contributor, uint32_t attempt) {
  const auto [it, is_new] = places_.try_emplace(contributor);
  if (!is_new) return;
  it->second.attempt = attempt;
  it->second.completed = floor_;
}

absl::Status ClockGate::Check(const Place& place, const CompleteRequest& request) const {
  const Share& share = request.share();
  const auto wrong = [&](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("contributor ", share.contributor(),
                                                   " completes clock ", request.step(), what...));
  };
  if (!place.lease.has_value()) return wrong(", but has nothing to do");
  if (request.step() != place.lease->clock()) return wrong(", but is at ", place.lease->clock());
  if (request.data_epoch() != place.lease->data_epoch() ||
      !SameRanges(share.ranges(), place.lease->ranges()) ||
      share.samples() != Count(Ranges(share.ranges()))) {
    return wrong(" with other samples than it was given");
  }
  if (!std::isfinite(share.weight()) || share.weight() < 0) {
    return wrong(" with the impossible weight ", share.weight());
  }
  if (!CompleteRequest::Fate_IsValid(request.fate())) return wrong(" with an unknown fate");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Verdict>> ClockGate::Complete(const CompleteRequest& request) {
  const uint32_t contributor = request.share().contributor();
  const auto found = places_.find(contributor);
  if (found == places_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("contributor ", contributor, " completes a clock, but has not entered"));
  }
  Place& place = found->second;
  if (place.has_completed && request.step() == place.complete.step()) {
    if (Content(place.complete) == Content(request)) return std::optional<Verdict>();
    return absl::InvalidArgumentError(absl::StrCat("contributor ", contributor, " completed clock ",
                                                   request.step(), " before with other contents"));
  }
  if (request.step() <= place.completed) {
    return absl::AbortedError(absl::StrCat("contributor ", contributor,
                                           " has long completed clock ", request.step(),
                                           "; the last one is ", place.completed));
  }
  if (absl::Status status = Check(place, request); !status.ok()) return status;

  Verdict verdict;
  verdict.set_step(version_);
  verdict.set_outcome(Verdict::STALE);
  const bool is_empty = place.lease->ranges().empty();
  const bool counts = !is_empty && request.fate() != CompleteRequest::REFUSED;
  if (is_empty) {
    verdict.set_outcome(Verdict::SKIP);
  } else if (counts) {
    DataPosition position = position_;
    if (absl::Status status = MarkUsed(position, request.data_epoch(),
                                       Ranges(request.share().ranges()), training_samples_);
        !status.ok()) {
      return status;
    }
    position_ = std::move(position);
    verdict.set_step(++version_);
    verdict.set_outcome(request.fate() == CompleteRequest::SKIPPED ? Verdict::SKIP
                                                                   : Verdict::APPLY);
    *verdict.add_shares() = request.share();
    verdict.set_total_weight(request.share().weight());
  } else {
    ++counts_.refused;
    counts_.cut += request.partly_applied();
  }
  verdict.set_rate_scale(1);
  verdict.set_clip_scale(1);
  verdict.set_data_epoch(request.data_epoch());

  place.completed = request.step();
  place.lease.reset();
  place.has_completed = true;
  place.complete = request;
  place.reply.Clear();
  *place.reply.mutable_verdict() = verdict;
  place.answered = false;
  if (!counts) return std::optional<Verdict>();
  return std::optional<Verdict>(std::move(verdict));
}

void ClockGate::Change(const std::map<uint32_t, uint32_t>& present,
                       const std::function<bool(uint32_t)>& left_something) {
  for (auto it = places_.begin(); it != places_.end();) {
    const auto now = present.find(it->first);
    if (now != present.end() && now->second == it->second.attempt) {
      ++it;
      continue;
    }
    if (it->second.lease.has_value() && !it->second.lease->ranges().empty()) {
      counts_.cut += left_something(it->first);
    }
    it = places_.erase(it);
  }
}

bool ClockGate::IsJobDone() const {
  // Of no samples nothing can be leased, ever.
  return training_samples_ == 0 || nominal_ == 0 || IsDone(job_, position_, version_);
}

std::vector<SampleRange> ClockGate::NextSamples() const {
  if (IsJobDone()) return {};
  DataPosition taken = position_;
  std::vector<SampleRange> leased;
  uint64_t leases = 0;
  for (const auto& [contributor, place] : places_) {
    if (!place.lease.has_value()) continue;
    leases += !place.lease->ranges().empty();
    leased.insert(leased.end(), place.lease->ranges().begin(), place.lease->ranges().end());
  }
  if (job_.has_steps() && version_ + leases >= StepsAskedFor(job_)) return {};
  // Leases are of unused samples and disjoint.
  if (!leased.empty() && !MarkUsed(taken, position_.epoch(), leased, training_samples_).ok()) {
    return {};
  }
  if (taken.epoch() != position_.epoch()) return {};
  return Divide(taken, training_samples_, 1, nominal_)[0];
}

void ClockGate::Give(Place& place, Lease lease, absl::Time now) {
  if (place.barrier.has_value()) {
    lease.set_version(*place.barrier);
    if (place.evaluation.version() != 0) *lease.mutable_evaluation() = place.evaluation;
    place.barrier.reset();
    place.evaluation.Clear();
  }
  place.since = now;
  place.lease = std::move(lease);
  if (place.has_completed && !place.answered) {
    *place.reply.mutable_lease() = *place.lease;
    place.answered = true;
  }
}

void ClockGate::Settle(absl::Time now, bool wants_barrier) {
  if (barrier_.has_value()) return;
  // A new data epoch begins with a barrier, and so does the end; but not where nothing was done.
  const bool at_end = IsJobDone();
  const bool epoch_over = position_.used().empty() && version_ != last_barrier_;
  if (!at_end && !epoch_over && !(wants_barrier && version_ != last_barrier_)) {
    LeaseSamples(now);
    return RaiseFloor();
  }
  if (wants_barrier && !checkpoint_wanted_.has_value()) checkpoint_wanted_ = now;
  const bool somebody_works = std::any_of(places_.begin(), places_.end(), [](const auto& entry) {
    return entry.second.lease.has_value() && entry.second.lease->clock() != 0;
  });
  if (somebody_works) return RaiseFloor();
  if (at_end && done_) {
    for (auto& [contributor, place] : places_) {
      if (place.lease.has_value()) continue;
      if (!place.barrier.has_value()) place.barrier = last_barrier_;
      Lease nothing;
      nothing.set_data_epoch(position_.epoch());
      Give(place, std::move(nothing), now);
    }
    return;
  }
  if (places_.empty()) return;
  barrier_ = version_;
  if (!checkpoint_wanted_.has_value()) return;
  ++counts_.checkpoint_barriers;
  counts_.checkpoint_barrier_wait += now - *std::exchange(checkpoint_wanted_, std::nullopt);
}

void ClockGate::LeaseSamples(absl::Time now) {
  for (auto& [contributor, place] : places_) {
    if (place.lease.has_value()) continue;
    std::vector<SampleRange> samples = NextSamples();
    // One that made the barrier has its part in the evaluation, if there is one, with or without
    // samples after it.
    const bool evaluates = place.barrier.has_value() && place.evaluation.version() != 0 &&
                           !place.answered && place.has_completed;
    if (samples.empty() && !evaluates) continue;
    place.completed = std::max(place.completed, floor_);
    Lease lease;
    lease.set_clock(place.completed + 1);
    lease.set_data_epoch(position_.epoch());
    lease.mutable_ranges()->Assign(samples.begin(), samples.end());
    Give(place, std::move(lease), now);
  }
  // Later the named version would lack what the bound asks for.
  for (auto& [contributor, place] : places_) place.barrier.reset();
}

void ClockGate::RaiseFloor() {
  std::optional<uint64_t> lowest;
  for (const auto& [contributor, place] : places_) {
    if (!place.lease.has_value()) continue;
    lowest = std::min(lowest.value_or(place.completed), place.completed);
  }
  if (lowest.has_value()) floor_ = std::max(floor_, *lowest);
}

void ClockGate::EndBarrier() {
  if (!barrier_.has_value()) return;
  last_barrier_ = *std::exchange(barrier_, std::nullopt);
  done_ = IsJobDone();
  EvaluationOrder evaluation;
  const bool within_epoch = !position_.used().empty();
  // One for a checkpoint within a data epoch is not evaluated.
  if (!within_epoch || done_) {
    evaluation.set_version(last_barrier_);
    // The end may come within a data epoch.
    evaluation.set_epoch(position_.epoch() + within_epoch);
  }
  for (const auto& [contributor, place] : places_) {
    // One that entered meanwhile has computed nothing and evaluates nothing.
    if (place.has_completed && !place.answered) evaluation.add_contributors(contributor);
    floor_ = std::max(floor_, place.completed);
  }
  for (auto& [contributor, place] : places_) {
    place.completed = floor_;
    place.barrier = last_barrier_;
    place.evaluation = evaluation;
  }
}

const CompleteReply* ClockGate::ReplyOf(uint32_t contributor, uint64_t clock) const {
  const auto found = places_.find(contributor);
  if (found == places_.end()) return nullptr;
  const Place& place = found->second;
  const bool has = place.has_completed && place.answered && place.complete.step() == clock;
  return has ? &place.reply : nullptr;
}

const Lease* ClockGate::LeaseOf(uint32_t contributor) const {
  const auto found = places_.find(contributor);
  if (found == places_.end() || !found->second.lease.has_value()) return nullptr;
  return &*found->second.lease;
}

uint32_t ClockGate::AttemptOf(uint32_t contributor) const {
  const auto found = places_.find(contributor);
  return found == places_.end() ? 0 : found->second.attempt;
}

std::vector<ClockGate::AtWork> ClockGate::at_work() const {
  std::vector<AtWork> at_work;
  for (const auto& [contributor, place] : places_) {
    if (!place.lease.has_value() || place.lease->clock() == 0) continue;
    at_work.push_back({contributor, place.completed, place.since});
  }
  return at_work;
}

}  // namespace parley
