#include "client/tensor_arena.h"

#include <cstring>

#include "common/tensor.h"

namespace parley {
namespace {

size_t RoundUp(size_t bytes, std::align_val_t alignment) {
  const size_t unit = static_cast<size_t>(alignment);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

TensorArena::TensorArena(const std::vector<TensorSpec>& tensors) {
  size_t bytes = 1;  // never nothing, so that each tensor has an address
  for (const TensorSpec& tensor : tensors) bytes += RoundUp(ByteCount(tensor), kAlignment);
  memory_ =
      std::shared_ptr<std::byte>(static_cast<std::byte*>(::operator new(bytes, kAlignment)),
                                 [](std::byte* memory) { ::operator delete(memory, kAlignment); });
  std::memset(memory_.get(), 0, bytes);
  std::byte* next = memory_.get();
  for (const TensorSpec& tensor : tensors) {
    tensors_.emplace_back(next, ByteCount(tensor));
    next += RoundUp(ByteCount(tensor), kAlignment);
  }
}

}  // namespace parley
