#include "client/torch/value_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <memory>

#include "client/torch/dtype.h"
#include "client/torch/torch_status.h"
#include "common/tensor.h"

namespace parley {

absl::StatusOr<ValueTensor> ToValueTensor(const at::Tensor& tensor) {
  ValueTensor value;
  value.dtype = ToDataType(tensor.scalar_type());
  if (value.dtype == DATA_TYPE_UNSPECIFIED || !tensor.device().is_cpu()) {
    return absl::InvalidArgumentError("only tensors of the CPU, of numbers, can be sent");
  }
  absl::Status status = CatchTorch("reading a tensor", [&] {
    const auto whole = std::make_shared<const at::Tensor>(tensor.detach().contiguous());
    value.shape = whole->sizes().vec();
    value.bytes =
        TensorBytes::Piece(static_cast<const std::byte*>(whole->const_data_ptr()), whole->nbytes());
    value.owner = whole;
  });
  if (!status.ok()) return status;
  return value;
}

namespace {

// As LibTorch's own memory has it.
constexpr uintptr_t kAlignment = 64;

bool CanStandWhereItLies(const ValueTensor& value) {
  return value.owner != nullptr && value.bytes.pieces().size() == 1 &&
         reinterpret_cast<uintptr_t>(value.bytes.pieces().front().data()) % kAlignment == 0;
}

}  // namespace

absl::StatusOr<at::Tensor> ToTensor(const ValueTensor& value) {
  const std::optional<c10::ScalarType> type = ToScalarType(value.dtype);
  TensorSpec spec;
  spec.set_dtype(value.dtype);
  spec.mutable_shape()->Assign(value.shape.begin(), value.shape.end());
  if (!type.has_value() || ByteCount(spec) != value.bytes.size()) {
    return absl::InvalidArgumentError("a tensor has another size than its type and shape say");
  }
  at::Tensor tensor;
  absl::Status status = CatchTorch("writing a tensor", [&] {
    if (CanStandWhereItLies(value)) {
      // LibTorch has no tensor of const bytes; nobody writes to what another process has sent.
      auto* const bytes = const_cast<std::byte*>(value.bytes.pieces().front().data());
      tensor = at::from_blob(
          bytes, value.shape, [owner = value.owner](void*) {}, at::TensorOptions().dtype(*type));
      return;
    }
    tensor = at::empty(value.shape, at::TensorOptions().dtype(*type));
    value.bytes.CopyTo(static_cast<std::byte*>(tensor.mutable_data_ptr()));
  });
  if (!status.ok()) return status;
  return tensor;
}

}  // namespace parley
