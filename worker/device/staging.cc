#include "worker/device/staging.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {

Staging::Staging(ComputeDevice& device, std::string what, size_t block_bytes, size_t most)
    : device_(device), what_(std::move(what)), block_bytes_(block_bytes), most_(most) {}

Staging::~Staging() {
  absl::MutexLock lock(&mu_);
  // Memory that a copy still uses must not go; a device that does not answer within a minute is
  // lost anyway.
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  for (const size_t block : copying_) {
    if (!device_.Await(*blocks_[block]->copied, deadline).ok()) break;
  }
}

absl::StatusOr<size_t> Staging::Pin() {
  auto memory = device_.AllocatePinned(what_, block_bytes_);
  if (!memory.ok()) return memory.status();
  auto copied = device_.MakeEvent();
  if (!copied.ok()) return copied.status();
  blocks_.push_back(std::make_unique<Block>());
  blocks_.back()->memory = *std::move(memory);
  blocks_.back()->copied = *std::move(copied);
  return blocks_.size() - 1;
}

absl::StatusOr<size_t> Staging::Take(absl::Time deadline) {
  const DeviceEvent* copied = nullptr;
  size_t oldest = 0;
  {
    absl::MutexLock lock(&mu_);
    if (!free_.empty()) {
      const size_t block = free_.back();
      free_.pop_back();
      return block;
    }
    if (blocks_.size() < most_) return Pin();
    if (copying_.empty()) {
      return absl::UnavailableError(
          absl::StrCat(what_, ": all ", most_, " blocks of pinned memory are in use by the host"));
    }
    oldest = copying_.front();
    copying_.erase(copying_.begin());
    copied = blocks_[oldest]->copied.get();
  }
  // The block is nobody else's now.
  if (absl::Status status = device_.Await(*copied, deadline); !status.ok()) {
    absl::MutexLock lock(&mu_);
    copying_.insert(copying_.begin(), oldest);
    return status;
  }
  return oldest;
}

std::byte* Staging::block(size_t i) const {
  absl::MutexLock lock(&mu_);
  return blocks_[i]->memory.data();
}

void Staging::Release(size_t block) {
  absl::MutexLock lock(&mu_);
  free_.push_back(block);
}

absl::Status Staging::ReleaseAfter(size_t block, StreamId stream) {
  absl::MutexLock lock(&mu_);
  if (absl::Status status = device_.Record(*blocks_[block]->copied, stream); !status.ok()) {
    return status;
  }
  copying_.push_back(block);
  return absl::OkStatus();
}

size_t Staging::blocks() const {
  absl::MutexLock lock(&mu_);
  return blocks_.size();
}

}  // namespace parley
