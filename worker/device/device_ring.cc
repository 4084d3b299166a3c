#include "worker/device/device_ring.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/clock/steady_now.h"

namespace parley {

absl::StatusOr<std::unique_ptr<DeviceRing>> DeviceRing::Make(ComputeDevice& device,
                                                             const std::string& what, size_t blocks,
                                                             size_t bytes) {
  auto ring = absl::WrapUnique(new DeviceRing(device));
  for (size_t i = 0; i < blocks; ++i) {
    auto memory = device.Allocate(what, bytes);
    if (!memory.ok()) return memory.status();
    auto free = device.MakeEvent();
    if (!free.ok()) return free.status();
    ring->blocks_.push_back({*std::move(memory), *std::move(free)});
  }
  return ring;
}

DeviceRing::~DeviceRing() {
  // A device that does not answer within a minute is lost.
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  for (const Block& block : blocks_) {
    if (block.used && !device_.Await(*block.free, deadline).ok()) break;
  }
}

absl::StatusOr<size_t> DeviceRing::Take(StreamId writer) {
  const size_t taken = next_;
  next_ = (next_ + 1) % blocks_.size();
  const Block& block = blocks_[taken];
  if (block.used) {
    if (absl::Status status = device_.Wait(writer, *block.free); !status.ok()) return status;
  }
  return taken;
}

absl::Status DeviceRing::Release(size_t i, StreamId reader) {
  blocks_[i].used = true;
  return device_.Record(*blocks_[i].free, reader);
}

}  // namespace parley
