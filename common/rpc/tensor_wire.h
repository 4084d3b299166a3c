#ifndef PARLEY_COMMON_RPC_TENSOR_WIRE_H_
#define PARLEY_COMMON_RPC_TENSOR_WIRE_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/tensor_slice.h"

namespace parley {

// The bytes of messages that carry tensors (PushRequest, PullReply): what protobuf would write and
// reads, but the tensors are gRPC slices over their own memory, which nobody copies. (TensorFlow
// encodes its tensors alike.)

// Where a message has its `repeated SliceData`.
inline constexpr uint32_t kPushSlicesField = 6;
inline constexpr uint32_t kPullSlicesField = 2;
inline constexpr uint32_t kNoSlices = 0;  // it has none

// `head`: the message without these slices. Bytes of a slice that has an owner are not copied: the
// owner is held until gRPC has sent or dropped them. Those of one without owner are copied.
grpc::ByteBuffer EncodeTensors(const google::protobuf::MessageLite& head, uint32_t slices_field,
                               absl::Span<const TensorSlice> slices);

// A message without tensors.
inline grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message) {
  return EncodeTensors(message, kNoSlices, {});
}

// Sets `head` to the message without its slices, and `slices` to these, as views of `bytes`
// (without owner). INVALID_ARGUMENT where protobuf would not read them as such a message, whatever
// the bytes are.
absl::Status DecodeTensors(const grpc::ByteBuffer& bytes, uint32_t slices_field,
                           google::protobuf::MessageLite& head, std::vector<TensorSlice>& slices);

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_TENSOR_WIRE_H_
