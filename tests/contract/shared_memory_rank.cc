#include "client/reduce/shared_memory_reducer.h"
#include "client/tensor_arena.h"
#include "common/shared_memory/segment_heap.h"
#include "tests/contract/reducer_contract.h"

namespace parley {
namespace {

class SharedMemoryRank final : public ReducerRank {
 public:
  SharedMemoryRank(const std::string& address, const std::vector<TensorSpec>& tensors)
      : tensors_(tensors), gradients_(tensors_, &heap_), reducer_(address, tensors_, gradients_) {}
  Reducer& reducer() override { return reducer_; }
  absl::Span<std::byte> gradient(size_t tensor) override { return gradients_.tensor(tensor); }

 private:
  const std::vector<TensorSpec> tensors_;
  SegmentHeap heap_{0};
  TensorArena gradients_;
  SharedMemoryReducer reducer_;
};

}  // namespace

ReducerKind SharedMemoryKind() {
  return {.name = "SharedMemory",
          .ordered = true,
          .make = [](const std::string& address, const std::vector<TensorSpec>& tensors) {
            return std::make_unique<SharedMemoryRank>(address, tensors);
          }};
}

}  // namespace parley
