#include "common/rpc/tensor_wire.h"

#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "proto/parameter_shard.pb.h"

namespace parley {
namespace {

using google::protobuf::util::MessageDifferencer;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// Cut anywhere, as a transport may.
grpc::ByteBuffer InPieces(const std::string& bytes, std::mt19937& random) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t most = random() % 3 == 0 ? 4 : 5000;
    const size_t size = std::min<size_t>(bytes.size() - at, 1 + random() % most);
    slices.emplace_back(bytes.data() + at, size);
    at += size;
  }
  return {slices.data(), slices.size()};
}

PushRequest RandomPush(std::mt19937& random) {
  PushRequest push;
  push.mutable_header()->set_job(std::string(random() % 40, 'j'));
  push.mutable_header()->set_member(random());
  push.set_step(random() % 3 == 0 ? 0 : uint64_t{random()} << 20);
  push.set_contributor(random() % 4);
  const size_t slices = random() % 5;
  for (size_t i = 0; i < slices; ++i) {
    SliceData& slice = *push.add_slices();
    slice.set_slice(random() % 300);
    slice.set_dtype(static_cast<DataType>(random() % 6));
    slice.set_data(std::string(random() % 2 == 0 ? random() % 10 : random() % 20000, 'x'));
    for (char& c : *slice.mutable_data()) c = static_cast<char>(random());
    if (random() % 3 == 0) slice.set_nonzero(std::string(random() % 40, static_cast<char>(i)));
    push.add_seen(random() % 1000);
  }
  return push;
}

PushRequest Assemble(const PushRequest& head, const std::vector<TensorSlice>& slices) {
  PushRequest push = head;
  for (const TensorSlice& slice : slices) CopyTo(slice, *push.add_slices());
  return push;
}

TEST(TensorWireTest, ProtobufReadsWhatIsWritten) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto push = std::make_shared<const PushRequest>(RandomPush(random));
    PushRequest head = *push;
    head.clear_slices();
    std::vector<TensorSlice> slices = ViewsOf(push->slices());
    for (TensorSlice& slice : slices) {
      if (random() % 4 != 0) slice.owner = push;
      if (slice.bytes.size() < 2 || random() % 2 == 0) continue;
      // In two pieces.
      const TensorBytes::Piece whole = slice.bytes.pieces()[0];
      const size_t middle = 1 + random() % (whole.size() - 1);
      slice.bytes = TensorBytes(whole.first(middle));
      slice.bytes.Append(whole.subspan(middle));
    }
    PushRequest read;
    ASSERT_TRUE(read.ParseFromString(BytesOf(EncodeTensors(head, kPushSlicesField, slices))));
    ASSERT_TRUE(MessageDifferencer::Equals(read, *push));
  }
}

TEST(TensorWireTest, ReadsWhatProtobufWritesHoweverItIsCut) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const PushRequest push = RandomPush(random);
    const grpc::ByteBuffer bytes = InPieces(push.SerializeAsString(), random);
    PushRequest head;
    std::vector<TensorSlice> slices;
    ASSERT_EQ(DecodeTensors(bytes, kPushSlicesField, head, slices), absl::OkStatus());
    EXPECT_EQ(head.slices_size(), 0);
    ASSERT_TRUE(MessageDifferencer::Equals(Assemble(head, slices), push));
  }
}

// The one promise for bytes from anywhere: what protobuf reads is read alike, all else is refused.
TEST(TensorWireTest, AgreesWithProtobufOnDamagedBytes) {
  std::mt19937 random(3);
  int refused = 0;
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = RandomPush(random).SerializeAsString();
    if (text.size() > 200) text.resize(200);
    const size_t changes = 1 + random() % 3;
    for (size_t i = 0; i < changes && !text.empty(); ++i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    PushRequest expected;
    const bool good = expected.ParseFromString(text);
    PushRequest head;
    std::vector<TensorSlice> slices;
    const grpc::ByteBuffer bytes = InPieces(text, random);
    const absl::Status status = DecodeTensors(bytes, kPushSlicesField, head, slices);
    ASSERT_EQ(status.ok(), good) << "round " << round << ": " << status << " "
                                 << absl::BytesToHexString(text);
    ++(good ? read : refused);
    if (!good) {
      EXPECT_TRUE(absl::IsInvalidArgument(status));
      EXPECT_TRUE(slices.empty());
      continue;
    }
    // Of a slice's unknown fields nobody makes anything.
    for (SliceData& slice : *expected.mutable_slices()) slice.DiscardUnknownFields();
    ASSERT_TRUE(MessageDifferencer::Equals(Assemble(head, slices), expected)) << round;
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(TensorWireTest, WhatLeavesNothingOutIsNotPacked) {
  // A push of slice 3 that has the field `nonzero`, with nothing in it.
  const grpc::Slice bytes(std::string("\x32\x04\x08\x03\x1a\0", 6));
  PushRequest head;
  std::vector<TensorSlice> slices;
  ASSERT_TRUE(DecodeTensors(grpc::ByteBuffer(&bytes, 1), kPushSlicesField, head, slices).ok());
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].slice, 3u);
  EXPECT_FALSE(slices[0].packed);
}

TEST(TensorWireTest, BorrowsLargeTensorsAndHoldsTheirOwner) {
  const auto memory = std::make_shared<std::string>(100'000, 'x');
  std::vector<TensorSlice> slices(1);
  slices[0].slice = 3;
  slices[0].dtype = F32;
  slices[0].bytes = std::string_view(*memory);
  slices[0].owner = memory;
  {
    const grpc::ByteBuffer bytes = EncodeTensors(PushRequest(), kPushSlicesField, slices);
    slices.clear();
    EXPECT_EQ(memory.use_count(), 2);
    std::vector<grpc::Slice> parts;
    ASSERT_TRUE(bytes.Dump(&parts).ok());
    EXPECT_TRUE(std::any_of(parts.begin(), parts.end(), [&](const grpc::Slice& part) {
      return part.begin() == reinterpret_cast<const uint8_t*>(memory->data());
    }));
  }
  EXPECT_EQ(memory.use_count(), 1);
}

TEST(TensorWireTest, AnEmptyMessage) {
  PullReply head;
  head.set_version(5);
  std::vector<TensorSlice> slices(2);
  EXPECT_EQ(DecodeTensors(EncodeMessage(PullReply()), kPullSlicesField, head, slices),
            absl::OkStatus());
  EXPECT_EQ(head.version(), 0u);
  EXPECT_TRUE(slices.empty());
  EXPECT_EQ(DecodeTensors(grpc::ByteBuffer(), kPullSlicesField, head, slices), absl::OkStatus());
}

}  // namespace
}  // namespace parley
