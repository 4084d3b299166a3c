#include "client/reference/value_blocks.h"

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// Sizes are multiples of it, so that values of nearly one size share blocks.
constexpr size_t kGrain = 64 << 10;

}  // namespace

absl::StatusOr<ValueBlocks::Block> ValueBlocks::Take(size_t bytes) {
  const size_t whole = (bytes + kGrain - 1) / kGrain * kGrain;
  auto best = blocks_.end();
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    const size_t size = it->second.memory->bytes();
    if (it->second.used || size < whole || size > 2 * whole) continue;
    if (best == blocks_.end() || size < best->second.memory->bytes()) best = it;
  }
  if (best != blocks_.end()) {
    best->second.used = true;
    return Block{best->first, best->second.memory};
  }
  for (auto it = blocks_.begin(); it != blocks_.end() && bytes_ + whole > most_bytes_;) {
    if (it->second.used) {
      ++it;
      continue;
    }
    bytes_ -= it->second.memory->bytes();
    gone_.push_back(it->first);
    it = blocks_.erase(it);
  }
  if (bytes_ + whole > most_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes_, " bytes of values have been sent and not been read yet"));
  }
  absl::StatusOr<std::shared_ptr<MemorySegment>> memory = MemorySegment::Create(whole);
  if (!memory.ok()) return memory.status();
  bytes_ += (*memory)->bytes();
  const uint32_t number = next_number_++;
  blocks_[number] = {*memory, true};
  return Block{number, *std::move(memory)};
}

absl::Status ValueBlocks::GiveBack(uint32_t number) {
  const auto found = blocks_.find(number);
  if (found == blocks_.end() || !found->second.used) {
    return absl::InvalidArgumentError(absl::StrCat("block ", number, " is not in use"));
  }
  found->second.used = false;
  return absl::OkStatus();
}

}  // namespace parley
