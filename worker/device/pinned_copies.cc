#include "worker/device/pinned_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "common/clock/steady_now.h"

namespace parley {

absl::StatusOr<std::unique_ptr<PinnedCopies>> PinnedCopies::Make(ComputeDevice& device,
                                                                 const Options& options) {
  auto copies = absl::WrapUnique(new PinnedCopies(device));
  for (size_t i = 0; i < options.blocks; ++i) {
    auto memory = device.AllocatePinned("tensors on their way", options.block_bytes);
    if (!memory.ok()) return memory.status();
    auto copied = device.MakeEvent();
    if (!copied.ok()) return copied.status();
    copies->blocks_.push_back({*std::move(memory), *std::move(copied), false, {}});
  }
  return copies;
}

PinnedCopies::~PinnedCopies() {
  // A device that does not answer within a minute is lost.
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  for (const Block& block : blocks_) {
    if (block.busy && !device_.Await(*block.copied, deadline).ok()) break;
  }
}

absl::Status PinnedCopies::Finish(Block& block, absl::Time deadline) {
  if (!block.busy) return absl::OkStatus();
  if (absl::Status done = device_.Await(*block.copied, deadline); !done.ok()) return done;
  block.busy = false;
  for (const Landing& landing : block.landings) {
    const std::byte* const from = block.memory.data() + landing.offset;
    device_.HostReads(from, landing.bytes);
    std::memcpy(landing.host, from, landing.bytes);
  }
  block.landings.clear();
  return absl::OkStatus();
}

absl::Status PinnedCopies::SendOff(Block& block) {
  block.busy = true;
  next_ = (next_ + 1) % blocks_.size();
  return device_.Record(*block.copied, StreamId::kCompute);
}

template <class Copies, class Copy>
absl::Status PinnedCopies::InBlocks(const Copies& copies, absl::Time deadline, Copy copy) {
  size_t filled = 0;  // of the block whose turn it is
  for (const auto& each : copies) {
    for (size_t done = 0; done < each.bytes;) {
      Block& block = blocks_[next_];
      if (absl::Status free = Finish(block, deadline); !free.ok()) return free;
      const size_t bytes = std::min(each.bytes - done, block.memory.size() - filled);
      absl::Status given = copy(each, done, block, filled, bytes);
      if (!given.ok()) return given;
      done += bytes;
      filled += bytes;
      if (filled < block.memory.size()) continue;
      filled = 0;
      if (absl::Status sent = SendOff(block); !sent.ok()) return sent;
    }
  }
  return filled == 0 ? absl::OkStatus() : SendOff(blocks_[next_]);
}

absl::Status PinnedCopies::ToDevice(absl::Span<const In> copies, absl::Time deadline) {
  const auto copy = [&](const In& in, size_t done, Block& block, size_t offset, size_t bytes) {
    std::byte* const pinned = block.memory.data() + offset;
    device_.HostWrites(pinned, bytes);
    std::memcpy(pinned, in.host + done, bytes);
    return device_.CopyToDevice(StreamId::kCompute, in.device + done, pinned, bytes);
  };
  return InBlocks(copies, deadline, copy);
}

absl::Status PinnedCopies::ToHost(absl::Span<const Out> copies, absl::Time deadline) {
  const auto copy = [&](const Out& out, size_t done, Block& block, size_t offset, size_t bytes) {
    block.landings.push_back({out.host + done, offset, bytes});
    return device_.CopyToHost(StreamId::kCompute, block.memory.data() + offset, out.device + done,
                              bytes);
  };
  absl::Status status = InBlocks(copies, deadline, copy);
  for (size_t k = 0; k < blocks_.size() && status.ok(); ++k) {
    status = Finish(blocks_[(next_ + k) % blocks_.size()], deadline);
  }
  if (!status.ok()) {
    for (Block& block : blocks_) block.landings.clear();
  }
  return status;
}

}  // namespace parley
