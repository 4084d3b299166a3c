#include "worker/device/sample_path.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr size_t kAlignment = 256;  // as the device's own allocations have

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// Shared with the batches, which may be the last to go.
struct SamplePath::Batch::Blocks {
  struct Block {
    DeviceBuffer memory;
    std::unique_ptr<DeviceEvent> free;  // its last batch has been computed with
    bool held = false;
    bool used = false;
  };

  explicit Blocks(ComputeDevice& on) : device(on) {}

  ~Blocks() {
    // A device that does not answer within a minute is lost.
    const absl::Time deadline = SteadyNow() + absl::Minutes(1);
    absl::MutexLock lock(&mu);
    for (const Block& block : blocks) {
      if (block.used && !device.Await(*block.free, deadline).ok()) break;
    }
  }

  // The copying stream waits for who has used it last.
  absl::StatusOr<size_t> Take() {
    absl::MutexLock lock(&mu);
    for (size_t k = 0; k < blocks.size(); ++k) {
      const size_t i = (next + k) % blocks.size();
      Block& block = blocks[i];
      if (block.held) continue;
      if (block.used) {
        absl::Status status = device.Wait(StreamId::kToDevice, *block.free);
        if (!status.ok()) return status;
      }
      block.held = true;
      next = (i + 1) % blocks.size();
      return i;
    }
    return absl::UnavailableError("all batches on the device are in use");
  }

  void Release(size_t i) {
    absl::MutexLock lock(&mu);
    // Of a lost device the block stays held, and what is asked of that next says why.
    if (!device.Record(*blocks[i].free, StreamId::kCompute).ok()) return;
    blocks[i].used = true;
    blocks[i].held = false;
  }

  std::byte* memory(size_t i) {
    absl::MutexLock lock(&mu);
    return blocks[i].memory.data();
  }

  ComputeDevice& device;
  absl::Mutex mu;
  std::vector<Block> blocks ABSL_GUARDED_BY(mu);
  size_t next ABSL_GUARDED_BY(mu) = 0;
};

SamplePath::Batch::~Batch() { blocks_->Release(block_); }

size_t SamplePath::RoomFor(Parts parts) {
  size_t bytes = 0;
  for (const auto& part : parts) bytes += Aligned(part.size());
  return bytes;
}

absl::StatusOr<std::unique_ptr<SamplePath>> SamplePath::Make(ComputeDevice& device,
                                                             const Options& options) {
  auto path = absl::WrapUnique(new SamplePath(device));
  path->batch_bytes_ = options.batch_bytes;
  path->blocks_ = std::make_shared<Batch::Blocks>(device);
  for (size_t i = 0; i < options.batches; ++i) {
    auto memory = device.Allocate("samples", options.batch_bytes);
    if (!memory.ok()) return memory.status();
    auto free = device.MakeEvent();
    if (!free.ok()) return free.status();
    absl::MutexLock lock(&path->blocks_->mu);
    path->blocks_->blocks.push_back({*std::move(memory), *std::move(free)});
  }
  path->staging_ =
      std::make_unique<Staging>(device, "samples", options.batch_bytes, options.batches);
  auto landed = device.MakeEvent();
  if (!landed.ok()) return landed.status();
  path->landed_ = *std::move(landed);
  return path;
}

absl::StatusOr<std::shared_ptr<SamplePath::Batch>> SamplePath::Take(Parts parts) {
  if (RoomFor(parts) > batch_bytes_) {
    return absl::InvalidArgumentError("a batch is larger than its memory");
  }
  const auto to = blocks_->Take();
  if (!to.ok()) return to.status();
  // From here on the block goes back with it, whatever happens.
  std::shared_ptr<Batch> batch(new Batch);
  batch->blocks_ = blocks_;
  batch->block_ = *to;
  std::byte* next = blocks_->memory(*to);
  for (const auto& part : parts) {
    batch->parts_.push_back(next);
    next += Aligned(part.size());
  }
  return batch;
}

absl::Status SamplePath::Land() {
  absl::Status status = device_.Record(*landed_, StreamId::kToDevice);
  return status.ok() ? device_.Wait(StreamId::kCompute, *landed_) : status;
}

absl::StatusOr<std::shared_ptr<SamplePath::Batch>> SamplePath::Bring(Parts parts,
                                                                     absl::Time deadline) {
  auto batch = Take(parts);
  if (!batch.ok()) return batch;
  const auto from = staging_->Take(deadline);
  if (!from.ok()) return from.status();
  std::byte* const pinned = staging_->block(*from);
  const size_t bytes = RoomFor(parts);
  device_.HostWrites(pinned, bytes);
  std::byte* next = pinned;
  for (const auto& part : parts) {
    std::memcpy(next, part.data(), part.size());
    next += Aligned(part.size());
  }
  absl::Status status =
      device_.CopyToDevice(StreamId::kToDevice, (*batch)->parts_.front(), pinned, bytes);
  if (status.ok()) status = staging_->ReleaseAfter(*from, StreamId::kToDevice);
  if (status.ok()) status = Land();
  if (!status.ok()) return status;
  return batch;
}

absl::StatusOr<std::shared_ptr<SamplePath::Batch>> SamplePath::BringPinned(Parts parts) {
  auto batch = Take(parts);
  if (!batch.ok()) return batch;
  absl::Status status;
  for (size_t i = 0; i < parts.size() && status.ok(); ++i) {
    // Somebody has written it, and may not do so now.
    device_.HostWrites(parts[i].data(), parts[i].size());
    status = device_.CopyToDevice(StreamId::kToDevice, (*batch)->parts_[i], parts[i].data(),
                                  parts[i].size());
  }
  if (status.ok()) status = Land();
  if (!status.ok()) return status;
  is_landing_ = true;
  return batch;
}

absl::Status SamplePath::AwaitPinned(absl::Time deadline) {
  return std::exchange(is_landing_, false) ? device_.Await(*landed_, deadline) : absl::OkStatus();
}

}  // namespace parley
