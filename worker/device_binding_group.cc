// DeviceBinding: in a node group that adds up its gradients among its GPUs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "worker/device_binding.h"
#include "worker/owned_parts.h"

namespace parley {

std::pair<uint64_t, uint64_t> DeviceBinding::Composition() const {
  const Reducer::Group* const group = options_.group->sums().group();
  return group == nullptr ? std::pair<uint64_t, uint64_t>()
                          : std::pair(group->job_epoch, group->composition);
}

absl::Status DeviceBinding::FollowGroup() {
  if (options_.group == nullptr) return absl::OkStatus();
  const Reducer::Group* const group = options_.group->sums().group();
  if (group == nullptr) return absl::FailedPreconditionError("a step of a node group without one");
  if (formed_ == Composition()) return absl::OkStatus();
  formed_.reset();
  if (absl::Status status = together_->Abort(); !status.ok()) return status;
  under_way_.clear();
  GroupGradientPath::Group path;
  path.rank = group->rank;
  path.ranks = static_cast<uint32_t>(group->members.size());
  path.buckets.resize(plan_.buckets.size());
  own_.assign(plan_.buckets.size(), {});
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    path.buckets[b].values = BucketPlan::Size(plan_.buckets[b]);
    path.buckets[b].flags = plan_.buckets[b].size();
    for (const OwnedPart& part : PartsByOwner(plan_.buckets[b], group->ranges)) {
      path.buckets[b].parts.push_back({part.at, part.at, part.count, part.rank});
      if (part.rank != group->rank) continue;
      own_[b].push_back({part.tensor, part.begin, part.count, part.at});
      path.buckets[b].own.push_back(session_->gradient(part.tensor).data() +
                                    part.begin * sizeof(float));
    }
  }
  if (absl::Status status = among_->Form(std::move(path)); !status.ok()) return status;
  std::optional<DeviceValues::Sharing> sharing;
  if (group->members.size() > 1) {
    sharing = {group->rank, group->ranges, [this] { return formed_ == Composition(); },
               [this](size_t most) { return AwaitBroadcasts(most); },
               [this](std::byte* values, absl::Span<const DeviceGroup::Part> parts) {
                 return BroadcastValues(values, parts);
               }};
  }
  values_->Form(std::move(sharing));
  GroupStream::Group together;
  together.join = [this, of = *group](const std::function<bool()>& cancelled) {
    return options_.group->join()(of, cancelled, absl::InfiniteFuture());
  };
  together.wake = [this] { session_->Wake(); };
  together.stands = group->stands;
  // The training thread waits no longer than the session lets it, and ends it then.
  together.patience = absl::InfiniteDuration();
  if (absl::Status status = together_->Form(std::move(together)); !status.ok()) return status;
  formed_ = Composition();
  return absl::OkStatus();
}

absl::Status DeviceBinding::Lose(absl::Status why) {
  lost_ = std::move(why);
  formed_.reset();
  to_add_up_ = false;  // no sums come any more
  // What was under way has not come, though its turn is over.
  values_->StopSharing();
  under_way_.clear();
  return together_->Abort();
}

absl::Status DeviceBinding::LoseUnlessOwn(const absl::Status& why) {
  // What this rank's own GPU says is no rank's loss: the job hears of it at once.
  if (absl::IsInternal(why) || absl::IsResourceExhausted(why)) return why;
  // A GPU hears of a rank that is gone before the coordinator does. Where it is none, Abandon says
  // after a while that this was why.
  return Lose(absl::AbortedError(why.message()));
}

bool DeviceBinding::StepIsLost() {
  // What was computed with broadcasts that did not come to their end is heard of later than it is
  // seen.
  if (!AwaitBroadcasts(0).ok()) return false;
  if (!lost_.ok() || together_ == nullptr) return !lost_.ok();
  const absl::Status error = together_->error();
  return !error.ok() && LoseUnlessOwn(error).ok();
}

absl::Status DeviceBinding::AwaitGroup(const std::function<bool()>& done) {
  const auto is_over = [&] { return done() || !together_->error().ok(); };
  if (!is_over()) {
    absl::Status status = session_->AwaitPeers("the GPUs of its node group", is_over);
    if (!status.ok()) return Lose(std::move(status));
  }
  const absl::Status error = together_->error();
  return error.ok() ? error : LoseUnlessOwn(error);
}

absl::Status DeviceBinding::AwaitBroadcasts(size_t most) {
  if (!lost_.ok() || under_way_.empty()) return absl::OkStatus();
  return AwaitGroup([&] {
    while (!under_way_.empty() && together_->HasEnded(under_way_.front())) under_way_.pop_front();
    return under_way_.size() <= most;
  });
}

absl::Status DeviceBinding::BroadcastValues(std::byte* values,
                                            absl::Span<const DeviceGroup::Part> parts) {
  // One of the events is free then.
  if (absl::Status status = AwaitBroadcasts(DeviceValues::kMostShared); !status.ok()) return status;
  if (!lost_.ok()) return absl::OkStatus();
  DeviceEvent* const end = broadcast_[next_broadcast_++ % broadcast_.size()].get();
  const uint64_t work = together_->Give(
      {[this, values, parts, end](DeviceGroup& among) {
         const StreamWork named(&device_, StreamId::kCommunication, "broadcast");
         absl::Status status = among.Broadcast(values, parts, BucketType::kFloat32,
                                               SteadyNow() + together_->patience());
         return status.ok() ? device_.Record(*end, StreamId::kCommunication) : status;
       },
       end, nullptr});
  under_way_.push_back(work);
  return AwaitGroup([&] { return together_->IsLaunched(work); });
}

absl::Status DeviceBinding::SendRest() {
  any_.assign(tensors_.size(), false);
  to_come_.assign(tensors_.size(), 0);
  for (size_t i = 0; i < tensors_.size(); ++i) to_come_[i] = plan_.buckets_of[i].size();
  for (size_t bucket = plan_.buckets.size(); bucket-- > 0;) {
    if (absl::Status status = Send(bucket); !status.ok()) return status;
  }
  // Those that have nothing to add up.
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (to_come_[i] == 0) options_.group->sums().Given(i, false);
  }
  to_add_up_ = true;
  return absl::OkStatus();
}

absl::Status DeviceBinding::TakeAllSums() {
  while (true) {
    const auto left = among_->Deliver(
        [this](size_t bucket, auto sums, auto flags) { return TakeSums(bucket, sums, flags); });
    if (!left.ok()) return LoseUnlessOwn(left.status());
    if (*left == 0) {
      values_->ShareNext();
      return absl::OkStatus();
    }
    absl::Status status =
        session_->AwaitPeers("the GPUs of its node group", [this] { return among_->IsReady(); });
    if (!status.ok()) return Lose(std::move(status));
  }
}

absl::Status DeviceBinding::TakeSums(size_t bucket, absl::Span<const float> sums,
                                     absl::Span<const float> flags) {
  // Else they are there already.
  for (const BucketPlan::Part& part : own_[bucket]) {
    if (sums.empty()) break;
    std::memcpy(session_->gradient(part.tensor).data() + part.begin * sizeof(float), sums.data(),
                part.count * sizeof(float));
    sums.remove_prefix(part.count);
  }
  for (size_t k = 0; k < flags.size(); ++k) {
    const size_t tensor = plan_.buckets[bucket][k].tensor;
    if (flags[k] > 0) any_[tensor] = true;
    if (--to_come_[tensor] == 0) options_.group->sums().Given(tensor, any_[tensor]);
  }
  return absl::OkStatus();
}

}  // namespace parley
