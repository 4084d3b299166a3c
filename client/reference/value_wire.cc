#include "client/reference/value_wire.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/rpc/channel.h"
#include "common/rpc/tensor_wire.h"
#include "common/tensor.h"
#include "common/tensor_slice.h"
#include "proto/remote_reference.pb.h"

namespace parley {
namespace {

// Both messages have their `repeated SliceData` there.
constexpr uint32_t kDataField = 15;
static_assert(kDataField == RemoteCallRequest::kDataFieldNumber &&
              kDataField == FetchReply::kDataFieldNumber);

// The rest of a message is names.
constexpr uint64_t kMostValueBytes = kMaxMessageBytes - (1 << 20);

uint64_t BytesOf(const RemoteValue& value) {
  uint64_t bytes = 0;
  for (const ValueTensor& tensor : value.tensors) bytes += tensor.bytes.size();
  return bytes;
}

void Describe(const RemoteValue& value, RemoteTensors& message, std::vector<TensorSlice>& data) {
  for (const ValueTensor& tensor : value.tensors) {
    RemoteTensor& described = *message.add_tensors();
    described.set_dtype(tensor.dtype);
    described.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    TensorSlice& slice = data.emplace_back();
    slice.slice = static_cast<uint32_t>(data.size() - 1);
    slice.bytes = tensor.bytes;
    slice.owner = tensor.owner;
  }
}

// Takes the value's tensors from the front of `data`; their bytes live as long as the owners there.
absl::StatusOr<ValuePtr> Assemble(const RemoteTensors& message,
                                  absl::Span<const TensorSlice>& data) {
  auto value = std::make_shared<RemoteValue>();
  for (const RemoteTensor& described : message.tensors()) {
    TensorSpec spec;
    spec.set_dtype(described.dtype());
    *spec.mutable_shape() = described.shape();
    if (data.empty() || ElementBytes(described.dtype()) == 0 ||
        data.front().bytes.size() != ByteCount(spec)) {
      return absl::InvalidArgumentError("a value whose bytes do not fit its types and shapes");
    }
    ValueTensor& tensor = value->tensors.emplace_back();
    tensor.dtype = described.dtype();
    tensor.shape.assign(described.shape().begin(), described.shape().end());
    tensor.bytes = data.front().bytes;
    tensor.owner = data.front().owner;
    data.remove_prefix(1);
  }
  return value;
}

}  // namespace

DescribedCall DescribeCall(const OutgoingCall& call, uint64_t most_bytes) {
  DescribedCall described;
  described.head = call.head;
  uint64_t bytes = 0;
  for (size_t i = 0; i < call.ahead.size(); ++i) {
    const ValuePtr& value = call.ahead[i];
    if (value == nullptr || bytes + BytesOf(*value) > most_bytes) continue;
    bytes += BytesOf(*value);
    Describe(*value, *described.head.mutable_arguments(static_cast<int>(i))->mutable_ahead(),
             described.data);
  }
  return described;
}

absl::StatusOr<OutgoingCall> AssembleCall(DescribedCall described) {
  OutgoingCall call;
  call.head = std::move(described.head);
  absl::Span<const TensorSlice> left = described.data;
  for (const ReferenceArgument& argument : call.head.arguments()) {
    ValuePtr& value = call.ahead.emplace_back();
    if (!argument.has_ahead()) continue;
    absl::StatusOr<ValuePtr> assembled = Assemble(argument.ahead(), left);
    if (!assembled.ok()) return assembled.status();
    value = *std::move(assembled);
  }
  if (!left.empty()) return absl::InvalidArgumentError("a call with more tensors than it names");
  return call;
}

grpc::ByteBuffer EncodeCall(const OutgoingCall& call) {
  const DescribedCall described = DescribeCall(call, kMostValueBytes);
  return EncodeTensors(described.head, kDataField, described.data);
}

absl::StatusOr<OutgoingCall> DecodeCall(const grpc::ByteBuffer& bytes) {
  const auto here = std::make_shared<grpc::ByteBuffer>(bytes);
  DescribedCall described;
  absl::Status status = DecodeTensors(*here, kDataField, described.head, described.data);
  if (!status.ok()) return status;
  for (TensorSlice& slice : described.data) slice.owner = here;
  return AssembleCall(std::move(described));
}

DescribedFetch DescribeFetched(const FetchedValue& fetched, uint64_t most_bytes) {
  DescribedFetch described;
  absl::Status status = fetched.value.status();
  if (status.ok() && BytesOf(**fetched.value) > most_bytes) {
    status = absl::ResourceExhaustedError(absl::StrCat("a value of ", BytesOf(**fetched.value),
                                                       " bytes is larger than a message, ",
                                                       most_bytes, " bytes"));
  }
  if (status.ok()) {
    Describe(**fetched.value, *described.head.mutable_value(), described.data);
  } else {
    described.head.set_error(static_cast<int>(status.code()));
    described.head.set_message(std::string(status.message()));
  }
  return described;
}

absl::StatusOr<FetchedValue> AssembleFetched(DescribedFetch described) {
  const FetchReply& head = described.head;
  if (head.error() != 0) {
    return FetchedValue{absl::Status(static_cast<absl::StatusCode>(head.error()), head.message())};
  }
  absl::Span<const TensorSlice> left = described.data;
  absl::StatusOr<ValuePtr> value = Assemble(head.value(), left);
  if (!value.ok()) return value.status();
  if (!left.empty()) return absl::InvalidArgumentError("a value with more tensors than it names");
  return FetchedValue{*std::move(value)};
}

bool IsBeyondGrpc(const FetchedValue& fetched, uint64_t most_bytes) {
  if (!fetched.value.ok()) return false;
  const uint64_t bytes = BytesOf(**fetched.value);
  return bytes > kMostValueBytes && bytes <= most_bytes;
}

grpc::ByteBuffer EncodeFetched(const FetchedValue& fetched) {
  const DescribedFetch described = DescribeFetched(fetched, kMostValueBytes);
  return EncodeTensors(described.head, kDataField, described.data);
}

absl::StatusOr<FetchedValue> DecodeFetched(const grpc::ByteBuffer& bytes) {
  const auto here = std::make_shared<grpc::ByteBuffer>(bytes);
  DescribedFetch described;
  absl::Status status = DecodeTensors(*here, kDataField, described.head, described.data);
  if (!status.ok()) return status;
  for (TensorSlice& slice : described.data) slice.owner = here;
  return AssembleFetched(std::move(described));
}

}  // namespace parley
