#include "worker/device/mostly_zero_gradients.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "common/nonzero_blocks.h"

namespace parley {
namespace {

static_assert(kNonzeroBlock == kZeroBlock, "the device and the shards cut gradients alike");

constexpr size_t kBlockBytes = kNonzeroBlock * sizeof(float);
// Smaller ones are not worth while.
constexpr size_t kFewestBlocks = 16;
// All are looked at in the first steps (a step's samples may have all words) and then in one of so
// many: to look at what is not zero touches a line of each block.
constexpr uint64_t kFirstSteps = 2;
constexpr uint64_t kEvery = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<MostlyZeroGradients>> MostlyZeroGradients::Make(
    ComputeDevice& device, const std::vector<size_t>& bytes) {
  auto gradients = absl::WrapUnique(new MostlyZeroGradients(device));
  size_t all = 0;
  for (const size_t each : bytes) {
    const size_t blocks = (each + kBlockBytes - 1) / kBlockBytes;
    gradients->tensors_.push_back({each, all, blocks < kFewestBlocks ? 0 : blocks});
    all += gradients->tensors_.back().blocks;
  }
  if (all > 0) {
    auto memory = device.AllocatePinned("which gradients are zeros", all);
    if (!memory.ok()) return memory.status();
    gradients->blocks_ = *std::move(memory);
  }
  return gradients;
}

void MostlyZeroGradients::BeginStep() {
  looks_ = steps_ < kFirstSteps || steps_ % kEvery == 0;
  ++steps_;
}

void MostlyZeroGradients::Forget(size_t tensor) {
  if (!std::exchange(tensors_[tensor].is_sparse, false)) return;
  steps_ = 0;  // it soon is again
}

absl::Span<uint8_t> MostlyZeroGradients::blocks(size_t i) {
  const Tensor& tensor = tensors_[i];
  if (!tensor.is_sparse || tensor.gone_whole) return {};
  return {reinterpret_cast<uint8_t*>(blocks_.data()) + tensor.first, tensor.blocks};
}

void MostlyZeroGradients::Look(size_t i, size_t begin, absl::Span<const std::byte> values) {
  Tensor& tensor = tensors_[i];
  if (!looks_ || tensor.blocks == 0 || tensor.gone_whole) return;
  auto* const blocks = reinterpret_cast<uint8_t*>(blocks_.data()) + tensor.first;
  if (begin == 0) device_.HostWrites(blocks_.data() + tensor.first, tensor.blocks);
  const size_t end = begin + values.size();
  for (size_t at = begin; at < end;) {
    const size_t block = at / kBlockBytes;
    const size_t until = std::min(end, (block + 1) * kBlockBytes);
    const bool holds = !AllZero(values.subspan(at - begin, until - at));
    // A piece may begin within a block.
    blocks[block] = holds || (at % kBlockBytes != 0 && blocks[block] != 0) ? 1 : 0;
    at = until;
  }
  if (end < tensor.bytes) return;
  const auto nonzero = static_cast<size_t>(std::count(blocks, blocks + tensor.blocks, 1));
  tensor.is_sparse = nonzero <= tensor.blocks / 4;
}

std::string MostlyZeroGradients::Take(size_t i) {
  Tensor& tensor = tensors_[i];
  device_.HostReads(blocks_.data() + tensor.first, tensor.blocks);
  const auto* const blocks = reinterpret_cast<const uint8_t*>(blocks_.data()) + tensor.first;
  std::string nonzero((tensor.blocks + 7) / 8, '\0');
  size_t count = 0;
  for (size_t block = 0; block < tensor.blocks; ++block) {
    if (blocks[block] == 0) continue;
    ++count;
    nonzero[block / 8] = static_cast<char>(nonzero[block / 8] | (1 << (block % 8)));
  }
  // Then a copy of all of it is faster.
  if (count > tensor.blocks / 2) tensor.is_sparse = false;
  return nonzero;
}

}  // namespace parley
