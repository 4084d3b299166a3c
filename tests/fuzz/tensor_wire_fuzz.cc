// Any bytes, cut anywhere, as a push or the answer to a pull: refused where protobuf refuses them,
// else read as protobuf reads them, and what is read can be written and read again. The first byte
// says where the rest is cut.
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/rpc/tensor_wire.h"
#include "proto/parameter_shard.pb.h"
#include "tests/fuzz/require.h"

namespace parley {
namespace {

grpc::ByteBuffer Cut(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.data() + at, std::min(piece, bytes.size() - at));
  }
  return {slices.data(), slices.size()};
}

template <class Message>
void Check(const std::string& bytes, size_t piece, uint32_t slices_field) {
  Message expected;
  const bool good = expected.ParseFromString(bytes);
  const grpc::ByteBuffer buffer = Cut(bytes, piece);
  Message read;
  std::vector<TensorSlice> slices;
  Require(DecodeTensors(buffer, slices_field, read, slices).ok() == good);
  if (!good) return;
  const grpc::ByteBuffer again = EncodeTensors(read, slices_field, slices);
  for (const TensorSlice& slice : slices) CopyTo(slice, *read.add_slices());
  // Of a slice's unknown fields nobody makes anything.
  for (SliceData& slice : *expected.mutable_slices()) slice.DiscardUnknownFields();
  Require(read.SerializeAsString() == expected.SerializeAsString());
  Message head;
  std::vector<TensorSlice> second;
  Require(DecodeTensors(again, slices_field, head, second).ok());
  for (const TensorSlice& slice : second) CopyTo(slice, *head.add_slices());
  Require(head.SerializeAsString() == expected.SerializeAsString());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t piece = 1 + data[0];
  Check<PushRequest>(bytes, piece, kPushSlicesField);
  Check<PullReply>(bytes, piece, kPullSlicesField);
  return 0;
}

}  // namespace parley
