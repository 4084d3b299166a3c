#include "worker/device/peer_outbox.h"

#include <algorithm>

namespace parley {
namespace {

// As CUDA aligns memory.
constexpr size_t kAlignment = 256;

}  // namespace

void PeerOutbox::BeginTurn(uint64_t turn, uint64_t first_read) {
  turn_ = turn;
  for (Block& block : blocks_) {
    if (block.last_turn < first_read) block.used = 0;
  }
}

absl::StatusOr<PeerOutbox::Place> PeerOutbox::Take(size_t bytes) {
  const size_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto block = std::find_if(blocks_.begin(), blocks_.end(),
                            [taken](const Block& one) { return one.bytes - one.used >= taken; });
  if (block == blocks_.end()) {
    const size_t size = std::max(taken, block_bytes_);
    auto shared = device_.AllocateShared(what_, size);
    if (!shared.ok()) return shared.status();
    blocks_.push_back({*std::move(shared), size});
    block = blocks_.end() - 1;
  }
  block->last_turn = turn_;
  const size_t offset = std::exchange(block->used, block->used + taken);
  return Place{block->shared.memory.data() + offset, block->shared.handle, block->bytes, offset};
}

}  // namespace parley
