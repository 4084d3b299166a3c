#include "worker/device/pinned_pool.h"

#include <algorithm>
#include <bit>

namespace parley {

absl::StatusOr<std::shared_ptr<std::byte>> PinnedPool::Take(size_t bytes) {
  // Of few sizes, at most a quarter more than asked for: tensors of one place in the network are
  // all alike, but for the last batch's.
  const size_t step = std::max<size_t>(16, std::bit_floor(bytes) / 4);
  const size_t size = std::max(step, (bytes + step - 1) / step * step);
  auto piece = std::make_shared<DeviceBuffer>();
  {
    absl::MutexLock lock(&free_->mu);
    for (DeviceBuffer& free : free_->pieces) {
      if (free.size() != size) continue;
      *piece = std::move(free);
      free = std::move(free_->pieces.back());
      free_->pieces.pop_back();
      break;
    }
  }
  if (piece->data() == nullptr) {
    auto pinned = device_.AllocatePinned(what_, size);
    if (!pinned.ok()) return pinned.status();
    *piece = *std::move(pinned);
  }
  std::byte* const data = piece->data();
  return std::shared_ptr<std::byte>(data, [free = free_, piece](std::byte*) {
    absl::MutexLock lock(&free->mu);
    free->pieces.push_back(std::move(*piece));
  });
}

}  // namespace parley
