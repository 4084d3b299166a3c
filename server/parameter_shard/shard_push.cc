// Shard: what contributors send.
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/shard.h"

namespace parley {

absl::StatusOr<PushReply> Shard::Push(const PushRequest& request,
                                      absl::Span<const TensorSlice> slices) {
  if (absl::Status status = Fence(request.header()); !status.ok()) {
    if (absl::IsAborted(status) || absl::IsFailedPrecondition(status)) {
      counts_.pushes_fenced += slices.size();
    }
    return status;
  }
  if (!ready()) {
    return absl::UnavailableError(absl::StrCat("shard ", ordinal_, " has no start values yet"));
  }
  if (!std::isfinite(ScaleOf(request))) {
    return absl::InvalidArgumentError(absl::StrCat("a push of contributor ", request.contributor(),
                                                   " with the scale ", request.scale()));
  }
  if (clocked_ != nullptr) return PushClocked(request, slices);
  const uint64_t open = version_ + 1;
  PushReply reply;
  if (request.step() < open || (request.step() == open && request.attempt() < attempt_)) {
    counts_.pushes_stale += slices.size();
    for (size_t i = 0; i < slices.size(); ++i) reply.add_outcomes(STALE);
    return reply;
  }
  if (absl::Status status = FenceComposition(request.contributor(), request.composition());
      !status.ok()) {
    // No STALE: to a step leader that has not heard of the view the part would be complete.
    counts_.pushes_fenced += slices.size();
    return status;
  }
  if (request.step() > open || request.attempt() > attempt_) {
    return absl::UnavailableError(absl::StrCat(
        "step ", request.step(), " attempt ", request.attempt(), " is not open on shard ", ordinal_,
        " yet: step ", open, " attempt ", attempt_, " is not decided"));
  }
  if (absl::Status status = CheckPush(request, slices); !status.ok()) return status;

  const double scale = ScaleOf(request);
  for (const TensorSlice& data : slices) {
    TableSlice& slice = *table_->Find(data.slice);
    if (slice.Has(request.contributor(), request.part())) {
      ++counts_.pushes_duplicate;
      reply.add_outcomes(DUPLICATE);
    } else if (closed_) {
      ++counts_.pushes_stale;
      reply.add_outcomes(STALE);
    } else {
      absl::Status added =
          slice.Add(*FindPart(data.slice, request.contributor(), request.part()), data, scale);
      // Those before it count: a repetition finds them there.
      if (!added.ok()) return added;
      ++counts_.pushes_added;
      counts_.push_bytes += data.bytes.size();
      reply.add_outcomes(ADDED);
      if (updates_ahead_) UpdateAhead(data.slice, slice);
    }
  }
  return reply;
}

void Shard::UpdateAhead(uint32_t id, const TableSlice& slice) {
  // Who takes part in the step has to be known, and all of them to have sent their parts.
  if (!opened_as_named_ || slice.identities().size() != open_view().PartsOf(id).size()) {
    return;
  }
  std::shared_ptr<AheadUpdate> update = table_->UpdateAhead(id, open_view().Contributors());
  if (update != nullptr) ahead_.push_back(std::move(update));
}

void Shard::UpdateAheadOfGradients() {
  if (!updates_ahead_ || !opened_as_named_ || HasEnded()) return;
  auto updates = table_->UpdateAheadOfGradients(open_view().Contributors());
  ahead_.insert(ahead_.end(), std::make_move_iterator(updates.begin()),
                std::make_move_iterator(updates.end()));
}

const PartRange* Shard::FindPart(uint32_t slice, uint32_t contributor, uint32_t part) const {
  for (const Routing* const routing : open_routings()) {
    const PartRange* const range = routing->FindPart(slice, contributor, part);
    if (range != nullptr) return range;
  }
  return nullptr;
}

absl::Status Shard::CheckPush(const PushRequest& request,
                              absl::Span<const TensorSlice> slices) const {
  const uint32_t contributor = request.contributor();
  const uint32_t part = request.part();
  if (absl::Status status = FencePart(request.header(), contributor, part); !status.ok()) {
    return status;
  }
  // All slices before any is added: a call that is refused has no effect.
  for (const TensorSlice& data : slices) {
    const TableSlice* const slice = table_->Find(data.slice);
    if (slice == nullptr) return WrongSlice(request.header(), data.slice);
    const PartRange* const range = FindPart(data.slice, contributor, part);
    if (range == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("part ", part, " of contributor ", contributor,
                                                     " has no share in ", slice->name(),
                                                     " in step ", request.step()));
    }
    if (absl::Status status = slice->Check(*range, data); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace parley
