#include "server/pipeline_stage/peer_tensor.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/pipeline/pipeline_message.h"
#include "common/tensor.h"

namespace parley {
namespace {

// Before the shape.
constexpr size_t kNumbers = 3;
// CUDA's have 64.
constexpr size_t kLongestHandle = 4096;

absl::Status Wrong() {
  return absl::InvalidArgumentError("another stage has sent a tensor on a GPU that cannot be one");
}

}  // namespace

ValueTensor HandleValue(const std::string& handle) {
  auto memory = std::make_shared<const std::string>(handle);
  ValueTensor value;
  value.dtype = U8;
  value.shape = {static_cast<int64_t>(memory->size())};
  value.bytes = std::string_view(*memory);
  value.owner = memory;
  return value;
}

absl::StatusOr<std::string> HandleOf(const ValueTensor& value) {
  if (value.dtype != U8 || value.bytes.size() > kLongestHandle) return Wrong();
  std::string handle(value.bytes.size(), '\0');
  value.bytes.CopyTo(reinterpret_cast<std::byte*>(handle.data()));
  return handle;
}

std::vector<ValueTensor> ToValues(absl::Span<const PeerTensor> tensors) {
  std::vector<ValueTensor> values;
  for (const PeerTensor& tensor : tensors) {
    std::vector<int64_t> numbers = {static_cast<int64_t>(tensor.block_bytes),
                                    static_cast<int64_t>(tensor.offset), tensor.dtype};
    numbers.insert(numbers.end(), tensor.shape.begin(), tensor.shape.end());
    values.push_back(TensorOf(std::move(numbers)));
    values.push_back(HandleValue(tensor.handle));
  }
  return values;
}

absl::StatusOr<std::vector<PeerTensor>> PeerTensorsOf(absl::Span<const ValueTensor> values) {
  if (values.empty() || values.size() % 2 != 0) return Wrong();
  std::vector<PeerTensor> tensors;
  for (size_t i = 0; i < values.size(); i += 2) {
    const auto numbers = IntegersOf(values[i]);
    if (!numbers.ok()) return numbers.status();
    auto handle = HandleOf(values[i + 1]);
    if (!handle.ok()) return handle.status();
    if (numbers->size() < kNumbers || (*numbers)[2] < DataType_MIN + 1 ||
        (*numbers)[2] > DataType_MAX) {
      return Wrong();
    }
    PeerTensor tensor;
    tensor.handle = *std::move(handle);
    tensor.block_bytes = static_cast<uint64_t>((*numbers)[0]);
    tensor.offset = static_cast<uint64_t>((*numbers)[1]);
    tensor.dtype = static_cast<DataType>((*numbers)[2]);
    tensor.shape.assign(numbers->begin() + kNumbers, numbers->end());
    TensorSpec spec;
    spec.set_dtype(tensor.dtype);
    spec.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    const uint64_t bytes = ByteCount(spec);
    // 0 is also what is said of a shape that no tensor has.
    const bool is_empty = std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0;
    if ((bytes == 0) != is_empty) return Wrong();
    if (tensor.offset > tensor.block_bytes || bytes > tensor.block_bytes - tensor.offset) {
      return Wrong();
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace parley
