#ifndef PARLEY_CLIENT_REFERENCE_VALUE_WIRE_H_
#define PARLEY_CLIENT_REFERENCE_VALUE_WIRE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/reference/reference_holder.h"
#include "client/reference/reference_owner.h"
#include "common/tensor_slice.h"
#include "proto/remote_reference.pb.h"

namespace parley {

// The bytes of the two messages of proto/remote_reference.proto that carry values: what protobuf
// would write and reads, but nobody copies the tensors (common/rpc/tensor_wire.h). What is decoded
// lies where gRPC has received it, and keeps that.
//
// INVALID_ARGUMENT where the bytes are no such message, or a tensor has another size than its type
// and shape say. A value of more bytes than a message takes (64 MiB) is sent as an error that says
// so; one that should go ahead stays where it is.

// The parts of a call: what is described of its values is added to the head, and their bytes are
// views. Values beyond so many bytes do not go ahead. And back: a value keeps the owners of its
// slices; INVALID_ARGUMENT as above.
struct DescribedCall {
  RemoteCallRequest head;  // without data
  std::vector<TensorSlice> data;
};
DescribedCall DescribeCall(const OutgoingCall& call, uint64_t most_bytes);
absl::StatusOr<OutgoingCall> AssembleCall(DescribedCall described);

grpc::ByteBuffer EncodeCall(const OutgoingCall& call);
absl::StatusOr<OutgoingCall> DecodeCall(const grpc::ByteBuffer& bytes);

// The same of a fetched value. One beyond so many bytes is an error that says so.
struct DescribedFetch {
  FetchReply head;  // without data
  std::vector<TensorSlice> data;
};
DescribedFetch DescribeFetched(const FetchedValue& fetched, uint64_t most_bytes);
absl::StatusOr<FetchedValue> AssembleFetched(DescribedFetch described);

// Whether it is a value that a message of gRPC does not take, but one of so many bytes does.
bool IsBeyondGrpc(const FetchedValue& fetched, uint64_t most_bytes);
grpc::ByteBuffer EncodeFetched(const FetchedValue& fetched);
absl::StatusOr<FetchedValue> DecodeFetched(const grpc::ByteBuffer& bytes);

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_VALUE_WIRE_H_
