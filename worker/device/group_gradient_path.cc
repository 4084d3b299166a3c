#include "worker/device/group_gradient_path.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// For the device to have one number.
constexpr absl::Duration kEnd = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<GroupGradientPath>> GroupGradientPath::Make(ComputeDevice& device,
                                                                           GroupStream& stream) {
  auto path = absl::WrapUnique(new GroupGradientPath(device, stream));
  auto one = device.Allocate("a flag", sizeof(float));
  if (!one.ok()) return one.status();
  const auto pinned = device.AllocatePinned("a flag", sizeof(float));
  if (!pinned.ok()) return pinned.status();
  const auto copied = device.MakeEvent();
  if (!copied.ok()) return copied.status();
  const float value = 1;
  device.HostWrites(pinned->data(), sizeof value);
  std::memcpy(pinned->data(), &value, sizeof value);
  absl::Status status =
      device.CopyToDevice(StreamId::kCompute, one->data(), pinned->data(), sizeof value);
  if (status.ok()) status = device.Record(**copied, StreamId::kCompute);
  if (status.ok()) status = device.Await(**copied, SteadyNow() + kEnd);
  if (!status.ok()) return status;
  path->one_ = *std::move(one);
  return path;
}

absl::Status GroupGradientPath::MakeRoom(size_t bucket) {
  const Bucket& plan = group_.buckets[bucket];
  Block& block = blocks_[bucket];
  block.parts = plan.parts;
  block.own = 0;
  for (const DeviceGroup::Part& part : plan.parts) {
    if (part.rank == group_.rank) block.own += part.count;
  }
  // Each rank gets the flags: behind those that it sends, which the others get from it too.
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    block.parts.push_back({plan.values, plan.values + plan.flags, plan.flags, rank});
  }
  const size_t packed = (plan.values + 2 * plan.flags) * sizeof(float);
  if (block.packed.size() < packed) {
    auto memory = device_.Allocate("gradients of a node group", packed);
    if (!memory.ok()) return memory.status();
    block.packed = *std::move(memory);
  }
  const size_t pinned = (block.own + plan.flags) * sizeof(float);
  if (block.pinned.size() < pinned) {
    auto memory = device_.AllocatePinned("gradients of a node group", pinned);
    if (!memory.ok()) return memory.status();
    block.pinned = *std::move(memory);
  }
  for (auto* const event : {&block.is_packed, &block.is_reduced, &block.is_copied}) {
    if (*event != nullptr) continue;
    auto made = device_.MakeEvent();
    if (!made.ok()) return made.status();
    *event = *std::move(made);
  }
  return absl::OkStatus();
}

absl::Status GroupGradientPath::Form(Group group) {
  group_ = std::move(group);
  blocks_.resize(group_.buckets.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (absl::Status status = MakeRoom(i); !status.ok()) return status;
  }
  to_deliver_ = blocks_.size();
  absl::MutexLock lock(&mu_);
  sent_.assign(blocks_.size(), false);
  next_ = blocks_.empty() ? 0 : blocks_.size() - 1;
  ready_.clear();
  return absl::OkStatus();
}

absl::Status GroupGradientPath::Send(size_t bucket, absl::Span<const Piece> pieces,
                                     absl::Span<const size_t> present, float scale) {
  const Bucket& plan = group_.buckets[bucket];
  Block& block = blocks_[bucket];
  std::vector<Piece> all(pieces.begin(), pieces.end());
  for (const size_t flag : present) {
    all.push_back({reinterpret_cast<float*>(one_.data()), plan.values + flag, 1});
  }
  {
    absl::MutexLock order(&order_mu_);
    absl::Status status = device_.Clear(StreamId::kCompute, block.packed.data(),
                                        (plan.values + plan.flags) * sizeof(float));
    if (status.ok() && !all.empty()) {
      status =
          device_.Pack(StreamId::kCompute, all, scale, BucketType::kFloat32, block.packed.data());
    }
    if (status.ok()) status = device_.Record(*block.is_packed, StreamId::kCompute);
    if (!status.ok()) return status;
  }
  absl::MutexLock lock(&mu_);
  sent_[bucket] = true;
  while (sent_[next_]) {
    const size_t next = std::exchange(next_, next_ == 0 ? blocks_.size() - 1 : next_ - 1);
    sent_[next] = false;
    stream_.Give({[this, next](DeviceGroup& among) { return Launch(among, next); },
                  blocks_[next].is_copied.get(),
                  [this, next] {
                    absl::MutexLock ended(&mu_);
                    ready_.push_back(next);
                  }});
  }
  return absl::OkStatus();
}

absl::Status GroupGradientPath::Launch(DeviceGroup& group, size_t bucket) {
  Block& block = blocks_[bucket];
  std::byte* const packed = block.packed.data();
  absl::Status status = device_.Wait(StreamId::kCommunication, *block.is_packed);
  const StreamWork work(&device_, StreamId::kCommunication, "reduce");
  if (status.ok()) {
    status =
        group.Reduce(packed, block.parts, BucketType::kFloat32, SteadyNow() + stream_.patience());
  }
  if (status.ok()) status = device_.Record(*block.is_reduced, StreamId::kCommunication);
  if (status.ok()) status = device_.Wait(StreamId::kToHost, *block.is_reduced);
  std::byte* to = block.pinned.data();
  block.is_direct = directly_;
  const std::vector<std::byte*>& owners = group_.buckets[bucket].own;
  size_t next_own = 0;
  for (size_t i = 0; i < block.parts.size(); ++i) {
    const DeviceGroup::Part& part = block.parts[i];
    if (!status.ok()) return status;
    const size_t bytes = part.count * sizeof(float);
    if (part.rank != group_.rank || bytes == 0) continue;
    // The flags come behind all values.
    const bool to_owner = block.is_direct && i < group_.buckets[bucket].parts.size();
    std::byte* const host = to_owner ? owners[next_own++] : to;
    status =
        device_.CopyToHost(StreamId::kToHost, host, packed + part.receive * sizeof(float), bytes);
    if (!to_owner) to += bytes;
  }
  if (status.ok()) status = device_.Record(*block.is_copied, StreamId::kToHost);
  return status;
}

void GroupGradientPath::HostReadsOwn(size_t bucket) {
  const Bucket& plan = group_.buckets[bucket];
  size_t next_own = 0;
  for (const DeviceGroup::Part& part : plan.parts) {
    if (part.rank != group_.rank || part.count == 0) continue;
    device_.HostReads(plan.own[next_own++], part.count * sizeof(float));
  }
}

bool GroupGradientPath::IsReady() const {
  if (!stream_.error().ok()) return true;
  absl::MutexLock lock(&mu_);
  return !ready_.empty();
}

absl::StatusOr<size_t> GroupGradientPath::Deliver(Push push) {
  while (true) {
    size_t bucket = 0;
    {
      absl::MutexLock lock(&mu_);
      if (ready_.empty()) break;
      bucket = ready_.front();
      ready_.pop_front();
    }
    const Block& block = blocks_[bucket];
    const uint64_t flags = group_.buckets[bucket].flags;
    const uint64_t own = block.is_direct ? 0 : block.own;
    device_.HostReads(block.pinned.data(), (own + flags) * sizeof(float));
    if (block.is_direct) HostReadsOwn(bucket);
    const auto* const values = reinterpret_cast<const float*>(block.pinned.data());
    absl::Status status = push(bucket, {values, own}, {values + own, static_cast<size_t>(flags)});
    if (!status.ok()) return status;
    --to_deliver_;
  }
  if (absl::Status error = stream_.error(); !error.ok()) return error;
  const size_t left = to_deliver_;
  if (left == 0) to_deliver_ = blocks_.size();
  return left;
}

}  // namespace parley
