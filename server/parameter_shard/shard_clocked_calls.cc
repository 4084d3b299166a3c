// Shard in bounded and async: what contributors push and pull (docs/clocked.md).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "server/parameter_shard/shard.h"

namespace parley {

absl::Status Shard::CheckAttempt(uint32_t contributor, uint32_t attempt) const {
  const uint32_t here = routing_->FindContributor(contributor)->attempt();
  if (attempt == here) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("contributor ", contributor, " is in attempt ", here, ", but says ", attempt));
}

absl::Status Shard::CheckClockedPush(const PushRequest& request,
                                     absl::Span<const TensorSlice> slices) const {
  const uint32_t contributor = request.contributor();
  if (absl::Status status = FencePart(request.header(), contributor, request.part());
      !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckAttempt(contributor, request.attempt()); !status.ok()) {
    return status;
  }
  if (request.step() == 0) return absl::InvalidArgumentError("clocks count from 1");
  if (static_cast<size_t>(request.seen_size()) != slices.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a push of ", slices.size(), " slices says what its sender saw of ", request.seen_size()));
  }
  // All slices before any is applied: a call that is refused has no effect.
  for (const TensorSlice& data : slices) {
    const TableSlice* const slice = table_->Find(data.slice);
    if (slice == nullptr) return WrongSlice(request.header(), data.slice);
    const PartRange* const range = routing_->FindPart(data.slice, contributor, request.part());
    const Slice& whole = routing_->slice(data.slice);
    if (range == nullptr || range->begin != 0 || range->end != whole.end() - whole.begin()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "part ", request.part(), " of contributor ", contributor, " is not the whole of ",
          slice->name(), ", which alone can be applied by itself"));
    }
    if (absl::Status status = slice->Check(*range, data); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool Shard::TakesBuffersOf(uint32_t contributor) const {
  for (const Contributor& one : routing_->view().contributors()) {
    if (one.ordinal() < contributor && routing_->SenderOf(one.ordinal(), 0) != 0) return false;
  }
  return true;
}

absl::StatusOr<PushReply> Shard::PushClocked(const PushRequest& request,
                                             absl::Span<const TensorSlice> slices) {
  if (absl::Status status = CheckClockedPush(request, slices); !status.ok()) return status;
  const ClockedTable::Caller caller{request.contributor(), request.attempt(), request.step()};
  const bool takes_buffers = TakesBuffersOf(request.contributor());
  PushReply reply;
  for (size_t i = 0; i < slices.size(); ++i) {
    const TensorSlice& data = slices[i];
    absl::StatusOr<PushOutcome> outcome = clocked_->table.Push(
        caller, *routing_->FindPart(data.slice, request.contributor(), request.part()), data,
        ScaleOf(request), request.seen(static_cast<int>(i)), takes_buffers);
    if (absl::IsAborted(outcome.status())) return outcome.status();
    if (!outcome.ok()) return absl::InternalError(outcome.status().message());
    if (*outcome == ADDED) {
      ++counts_.pushes_added;
      counts_.push_bytes += data.bytes.size();
    } else {
      ++(*outcome == STALE ? counts_.pushes_stale : counts_.pushes_duplicate);
    }
    reply.add_outcomes(*outcome);
  }
  counts_.copied_bytes += table_->TakeCopied();
  counts_.updates = former_.updates + clocked_->table.updates();
  counts_.staleness = former_.staleness;
  counts_.staleness.Add(clocked_->table.staleness());
  return reply;
}

void Shard::PullClocked(const PullRequest& request, CallTime time, Replies& replies,
                        Done<PulledVersion> done) {
  absl::Status status;
  if (request.clock() != 0) status = FencePart(request.header(), request.contributor(), 0);
  if (status.ok()) status = CheckPulled(request.header(), request.slices());
  if (!status.ok()) return replies.Add<PulledVersion>(std::move(done), status);
  if (MayPull(request)) return replies.Add<PulledVersion>(std::move(done), PinClocked(request));
  status = RoomForPull(request.header().member());
  if (!status.ok()) return replies.Add<PulledVersion>(std::move(done), status);
  ParkedPull parked;
  parked.member = request.header().member();
  parked.request = request;
  parked.step = request.clock() != 0 && !request.named() ? request.clock() : request.version();
  parked.contributor = request.contributor();
  parked.since = time.now;
  parked.deadline = time.deadline;
  parked.done = std::move(done);
  pulls_.push_back(std::move(parked));
}

bool Shard::MayPull(const PullRequest& request) const {
  if (!ready()) return false;
  if (request.named() || request.clock() == 0) return request.version() <= version_;
  const std::optional<uint64_t> bound = ClockBound(job_);
  // floor >= clock - bound - 1, without going below 0.
  return !bound.has_value() || clocked_->floor + *bound + 1 >= request.clock();
}

absl::StatusOr<PulledVersion> Shard::PinClocked(const PullRequest& request) {
  const bool named = request.named() || request.clock() == 0;
  ClockedTable::Caller caller{request.contributor(), 0, request.clock()};
  if (request.clock() != 0) {
    caller.attempt = routing_->FindContributor(request.contributor())->attempt();
  }
  PulledVersion pulled;
  pulled.version = named ? request.version() : version_;
  pulled.has_updates = true;
  uint64_t bytes = 0;
  for (const uint32_t id : request.slices()) {
    std::optional<ClockedTable::Values> values;
    if (!named) {
      values = clocked_->table.PullNewest(id, caller);
    } else if (request.version() == version_) {
      values = clocked_->table.PullNamed(id, routing_->view().start_version(), caller);
    }
    if (!values.has_value()) {
      return absl::OutOfRangeError(absl::StrCat("version ", request.version(), " of slice ", id,
                                                " is gone, the last named one is ", version_));
    }
    bytes += values->values->size();
    pulled.slices.push_back(
        {id, routing_->tensor(id).dtype(), std::move(values->values), values->updates});
  }
  counts_.pull_bytes += bytes;
  return pulled;
}

void Shard::AnswerClockedPulls(Replies& replies) {
  for (auto it = pulls_.begin(); it != pulls_.end();) {
    const PullRequest& request = it->request;
    absl::Status status = FenceMember(request.header());
    if (status.ok() && request.clock() != 0) {
      status = FencePart(request.header(), request.contributor(), 0);
    }
    if (status.ok() && !MayPull(request)) {
      ++it;
      continue;
    }
    if (status.ok()) {
      replies.Add<PulledVersion>(std::move(it->done), PinClocked(request));
    } else {
      replies.Add<PulledVersion>(std::move(it->done), status);
    }
    it = pulls_.erase(it);
  }
}

}  // namespace parley
