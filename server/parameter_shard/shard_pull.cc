// Shard: what members read.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/shard.h"

namespace parley {

void Shard::Pull(const PullRequest& request, CallTime time, Replies& replies,
                 Done<PulledVersion> done) {
  absl::Status status = Fence(request.header());
  if (status.ok() && clocked_ != nullptr) {
    return PullClocked(request, time, replies, std::move(done));
  }
  if (status.ok()) {
    // A job that counts epochs takes more steps where workers are lost, fewer where more join.
    if (job_.has_steps() && request.version() > job_.steps()) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "version ", request.version(), " never comes: the job has ", job_.steps(), " steps"));
    }
    if (status.ok()) status = CheckPulled(request.header(), request.slices());
  }
  if (!status.ok()) return replies.Add<PulledVersion>(std::move(done), status);

  std::vector<uint32_t> slices(request.slices().begin(), request.slices().end());
  if (ready() && IsCarriedOut(request.version(), slices)) {
    return replies.Add(std::move(done), PinSlices(request.version(), slices));
  }
  status = RoomForPull(request.header().member());
  if (!status.ok()) return replies.Add<PulledVersion>(std::move(done), status);
  ParkedPull parked;
  parked.member = request.header().member();
  parked.step = request.version();
  parked.since = time.now;
  parked.deadline = time.deadline;
  parked.done = std::move(done);
  parked.slices = std::move(slices);
  pulls_.push_back(std::move(parked));
}

bool Shard::IsCarriedOut(uint64_t version, absl::Span<const uint32_t> slices) const {
  if (version > version_ || work_ == nullptr) return version <= version_;
  // Of no slices: when nothing is read any more of what was lent for the step.
  return !slices.empty() && std::none_of(slices.begin(), slices.end(),
                                         [&](uint32_t slice) { return work_->IsAtWork(slice); });
}

absl::Status Shard::CheckPulled(const CallHeader& header, absl::Span<const uint32_t> slices) const {
  if (slices.size() > routing_->own_slices().size()) {
    return absl::InvalidArgumentError(absl::StrCat("a Pull of ", slices.size(), " slices, where ",
                                                   routing_->own_slices().size(), " lie on shard ",
                                                   ordinal_));
  }
  for (const uint32_t slice : slices) {
    if (!routing_->Owns(slice)) return WrongSlice(header, slice);
  }
  return absl::OkStatus();
}

absl::StatusOr<PulledVersion> Shard::PinSlices(uint64_t version,
                                               absl::Span<const uint32_t> slices) {
  PulledVersion pulled;
  pulled.version = version;
  uint64_t bytes = 0;
  if (!IsCarriedOut(version, slices)) {
    return absl::UnavailableError(absl::StrCat("step ", version_, " is being carried out"));
  }
  for (const uint32_t id : slices) {
    TableSlice* const slice = table_->Find(id);
    PinnedBuffer values = slice == nullptr ? nullptr : slice->PinVersion(version);
    if (values == nullptr) {
      return absl::OutOfRangeError(absl::StrCat("the job has passed version ", version, ": slice ",
                                                id, " on shard ", ordinal_, " has version ",
                                                version_));
    }
    bytes += values->size();
    pulled.slices.push_back({id, routing_->tensor(id).dtype(), std::move(values)});
  }
  counts_.pull_bytes += bytes;
  return pulled;
}

void Shard::AnswerPulls(Replies& replies) {
  for (auto it = pulls_.begin(); it != pulls_.end();) {
    if (!IsCarriedOut(it->step, it->slices)) {
      ++it;
      continue;
    }
    replies.Add(std::move(it->done), PinSlices(it->step, it->slices));
    it = pulls_.erase(it);
  }
}

void Shard::WhyFailed(const WhyFailedRequest& request, CallTime time, Replies& replies,
                      Done<WhyFailedReply> done) {
  // Epochs do not matter here: whoever belongs to the job may know.
  if (absl::Status status = FenceMember(request.header()); !status.ok()) {
    return replies.Add<WhyFailedReply>(std::move(done), status);
  }
  if (cause_.has_value()) {
    WhyFailedReply reply;
    *reply.mutable_cause() = *cause_;
    return replies.Add<WhyFailedReply>(std::move(done), std::move(reply));
  }
  if (absl::Status status = RoomForWhyFailed(request.header().member()); !status.ok()) {
    return replies.Add<WhyFailedReply>(std::move(done), status);
  }
  Parked<WhyFailedReply> parked;
  parked.member = request.header().member();
  parked.since = time.now;
  parked.deadline = time.deadline;
  parked.done = std::move(done);
  why_failed_.push_back(std::move(parked));
}

PullReply HeadOf(const PulledVersion& pulled) {
  PullReply head;
  head.set_version(pulled.version);
  if (!pulled.has_updates) return head;
  for (const PulledVersion::OneSlice& slice : pulled.slices) head.add_updates(slice.updates);
  return head;
}

std::vector<TensorSlice> SlicesOf(const PulledVersion& pulled) {
  std::vector<TensorSlice> slices;
  slices.reserve(pulled.slices.size());
  for (const PulledVersion::OneSlice& slice : pulled.slices) {
    slices.push_back({slice.slice, slice.dtype,
                      TensorBytes::Piece(slice.values->data(), slice.values->size()),
                      slice.values});
  }
  return slices;
}

PullReply ToReply(const PulledVersion& pulled) {
  PullReply reply = HeadOf(pulled);
  for (const TensorSlice& slice : SlicesOf(pulled)) CopyTo(slice, *reply.add_slices());
  return reply;
}

}  // namespace parley
