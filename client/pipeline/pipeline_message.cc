#include "client/pipeline/pipeline_message.h"

#include <memory>
#include <utility>

namespace parley {
namespace {

constexpr size_t kKeyNumbers = 7;  // of the key, and whether what it brings is on a device

template <class Number>
ValueTensor Vector(DataType dtype, std::vector<Number> numbers) {
  auto memory = std::make_shared<const std::vector<Number>>(std::move(numbers));
  ValueTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = {static_cast<int64_t>(memory->size())};
  tensor.bytes = TensorBytes::Piece(reinterpret_cast<const std::byte*>(memory->data()),
                                    memory->size() * sizeof(Number));
  tensor.owner = memory;
  return tensor;
}

template <class Number>
absl::StatusOr<std::vector<Number>> NumbersOf(DataType dtype, const ValueTensor& tensor) {
  // By the bytes that are there: a shape is a peer's word.
  const uint64_t size = tensor.bytes.size();
  if (tensor.dtype != dtype || tensor.shape.size() != 1 || size % sizeof(Number) != 0 ||
      tensor.shape[0] < 0 || static_cast<uint64_t>(tensor.shape[0]) != size / sizeof(Number)) {
    return absl::InvalidArgumentError("a message between stages has numbers of another kind");
  }
  std::vector<Number> numbers(size / sizeof(Number));
  tensor.bytes.CopyTo(reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

}  // namespace

ValueTensor TensorOf(std::vector<int64_t> numbers) { return Vector(I64, std::move(numbers)); }
ValueTensor TensorOf(std::vector<double> numbers) { return Vector(F64, std::move(numbers)); }

absl::StatusOr<std::vector<int64_t>> IntegersOf(const ValueTensor& tensor) {
  return NumbersOf<int64_t>(I64, tensor);
}

absl::StatusOr<std::vector<double>> DoublesOf(const ValueTensor& tensor) {
  return NumbersOf<double>(F64, tensor);
}

RemoteValue ToValue(const PipelineKey& key, std::vector<ValueTensor> tensors, bool on_device) {
  RemoteValue value;
  value.tensors.push_back(TensorOf(std::vector<int64_t>{
      static_cast<int64_t>(key.job_epoch), static_cast<int64_t>(key.composition),
      static_cast<int64_t>(key.unit), static_cast<int64_t>(key.kind), key.part, key.microbatch,
      on_device ? 1 : 0}));
  for (ValueTensor& tensor : tensors) value.tensors.push_back(std::move(tensor));
  return value;
}

absl::StatusOr<PipelineKey> KeyOf(const RemoteValue& value) {
  if (value.tensors.empty()) return absl::InvalidArgumentError("a message between stages is empty");
  const absl::StatusOr<std::vector<int64_t>> numbers = IntegersOf(value.tensors[0]);
  if (!numbers.ok()) return numbers.status();
  if (numbers->size() != kKeyNumbers || (*numbers)[3] < 0 ||
      (*numbers)[3] > static_cast<int64_t>(PipelineKind::kAnswer)) {
    return absl::InvalidArgumentError("a message between stages is of an unknown kind");
  }
  PipelineKey key;
  key.job_epoch = static_cast<uint64_t>((*numbers)[0]);
  key.composition = static_cast<uint64_t>((*numbers)[1]);
  key.unit = static_cast<uint64_t>((*numbers)[2]);
  key.kind = static_cast<PipelineKind>((*numbers)[3]);
  key.part = static_cast<uint32_t>((*numbers)[4]);
  key.microbatch = static_cast<uint32_t>((*numbers)[5]);
  return key;
}

bool IsOnDevice(const RemoteValue& value) {
  if (value.tensors.empty()) return false;
  const absl::StatusOr<std::vector<int64_t>> numbers = IntegersOf(value.tensors[0]);
  return numbers.ok() && numbers->size() == kKeyNumbers && numbers->back() == 1;
}

std::vector<ValueTensor> ToTensors(const PipelineWork& work) {
  return {TensorOf(std::vector<int64_t>{static_cast<int64_t>(work.kind),
                                        static_cast<int64_t>(work.version), work.microbatches,
                                        work.steps})};
}

absl::StatusOr<PipelineWork> WorkOf(const RemoteValue& value) {
  const absl::Status wrong = absl::InvalidArgumentError("a unit of work of no known kind");
  if (value.tensors.size() != 2) return wrong;
  const absl::StatusOr<std::vector<int64_t>> numbers = IntegersOf(value.tensors[1]);
  if (!numbers.ok()) return numbers.status();
  if (numbers->size() != 4 || (*numbers)[0] < 0 ||
      (*numbers)[0] > static_cast<int64_t>(PipelineWork::Kind::kEvaluation) || (*numbers)[2] < 0 ||
      (*numbers)[2] > UINT32_MAX || (*numbers)[3] < 1 || (*numbers)[3] > UINT32_MAX) {
    return wrong;
  }
  PipelineWork work;
  work.kind = static_cast<PipelineWork::Kind>((*numbers)[0]);
  work.version = static_cast<uint64_t>((*numbers)[1]);
  work.microbatches = static_cast<uint32_t>((*numbers)[2]);
  work.steps = static_cast<uint32_t>((*numbers)[3]);
  return work;
}

}  // namespace parley
