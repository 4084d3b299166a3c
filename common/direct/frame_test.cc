#include "common/direct/frame.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace parley {
namespace {

using Random = std::mt19937_64;

size_t Draw(Random& random, size_t least, size_t most) {
  return std::uniform_int_distribution<size_t>(least, most)(random);
}

std::string Bytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A frame, and what of it must come.
struct Sample {
  DirectFrame frame;
  std::vector<std::string> tensors;
  std::vector<TensorSlice> slices;
};

Sample DrawSample(Random& random) {
  Sample sample;
  sample.frame.set_call(random());
  sample.frame.mutable_request()->set_method("Push");
  sample.frame.mutable_request()->set_message(Bytes(random, Draw(random, 0, 300)));
  const size_t count = Draw(random, 0, 4);
  for (size_t i = 0; i < count; ++i) {
    const size_t most = Draw(random, 0, 3) == 0 ? 200000 : 300;
    sample.tensors.push_back(Bytes(random, Draw(random, 0, most)));
  }
  for (size_t i = 0; i < count; ++i) {
    TensorSlice slice;
    slice.slice = static_cast<uint32_t>(10 * i);
    slice.dtype = i % 2 == 0 ? F32 : U8;
    slice.nonzero = Bytes(random, Draw(random, 0, 40));
    slice.packed = !slice.nonzero.empty() && Draw(random, 0, 1) == 0;
    // In pieces, as what gRPC has received.
    std::string_view left = sample.tensors[i];
    while (!left.empty()) {
      const size_t size = Draw(random, 1, left.size());
      slice.bytes.Append({reinterpret_cast<const std::byte*>(left.data()), size});
      left.remove_prefix(size);
    }
    sample.slices.push_back(slice);
  }
  return sample;
}

std::string Written(OutgoingFrame& frame, Random& random) {
  std::string bytes;
  while (frame.bytes_left() > 0) {
    std::array<iovec, 3> parts;
    const size_t count = frame.Parts(absl::MakeSpan(parts));
    EXPECT_GT(count, 0u);
    size_t all = 0;
    for (size_t i = 0; i < count; ++i) all += parts[i].iov_len;
    const size_t taken = Draw(random, 1, all);  // as a socket does
    size_t left = taken;
    for (size_t i = 0; i < count; ++i) {
      const size_t size = std::min(left, parts[i].iov_len);
      bytes.append(static_cast<const char*>(parts[i].iov_base), size);
      left -= size;
    }
    frame.Sent(taken);
  }
  return bytes;
}

// In any portions, to whichever place the reader has for them.
absl::Status ReadAll(FrameReader& reader, std::string_view bytes, Random& random,
                     std::vector<ReceivedFrame>& whole) {
  while (!bytes.empty()) {
    size_t size = std::min(bytes.size(), Draw(random, 1, 40000));
    const absl::Span<std::byte> room = reader.Room();
    if (!room.empty() && Draw(random, 0, 1) == 0) {
      size = std::min(size, room.size());
      std::memcpy(room.data(), bytes.data(), size);
      reader.Filled(size, whole);
    } else {
      absl::Status taken =
          reader.Take({reinterpret_cast<const std::byte*>(bytes.data()), size}, whole);
      if (!taken.ok()) return taken;
    }
    bytes.remove_prefix(size);
  }
  return absl::OkStatus();
}

void ExpectSame(const Sample& sent, const ReceivedFrame& came) {
  EXPECT_EQ(came.what.call(), sent.frame.call());
  EXPECT_EQ(came.what.request().message(), sent.frame.request().message());
  ASSERT_EQ(came.slices.size(), sent.tensors.size());
  for (size_t i = 0; i < came.slices.size(); ++i) {
    const TensorSlice& slice = came.slices[i];
    EXPECT_EQ(slice.slice, sent.slices[i].slice);
    EXPECT_EQ(slice.dtype, sent.slices[i].dtype);
    EXPECT_EQ(slice.packed, sent.slices[i].packed);
    EXPECT_EQ(slice.nonzero, slice.packed ? sent.slices[i].nonzero : "");
    ASSERT_EQ(slice.bytes.size(), sent.tensors[i].size());
    if (slice.bytes.size() == 0) continue;
    ASSERT_EQ(slice.bytes.pieces().size(), 1u);
    const std::byte* const data = slice.bytes.pieces().front().data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % ReceiveBuffers::kAlignment, 0u);
    EXPECT_EQ(std::memcmp(data, sent.tensors[i].data(), sent.tensors[i].size()), 0);
    EXPECT_NE(slice.owner, nullptr);
  }
}

TEST(FrameTest, WhatIsWrittenInAnyPortionsIsReadInAnyPortions) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::vector<Sample> samples;
    std::string bytes;
    for (size_t i = 0; i < 5; ++i) {
      samples.push_back(DrawSample(random));
      OutgoingFrame frame(samples.back().frame, samples.back().slices);
      bytes += Written(frame, random);
    }
    FrameReader reader(std::make_shared<ReceiveBuffers>(1 << 20));
    std::vector<ReceivedFrame> whole;
    ASSERT_TRUE(ReadAll(reader, bytes, random, whole).ok()) << "seed " << seed;
    ASSERT_EQ(whole.size(), samples.size()) << "seed " << seed;
    for (size_t i = 0; i < whole.size(); ++i) ExpectSame(samples[i], whole[i]);
  }
}

// The bytes of a frame with one slice of 100 bytes.
std::string OneSlice() {
  static const std::string& tensor = *new std::string(100, 't');
  DirectFrame frame;
  frame.set_call(7);
  frame.mutable_answer();
  TensorSlice slice;
  slice.bytes = std::string_view(tensor);
  OutgoingFrame outgoing(frame, {slice});
  Random random(1);
  return Written(outgoing, random);
}

// The bytes of a frame that says that it has such slices, and so many bytes of tensors.
std::string Described(const std::vector<uint64_t>& slices, uint64_t tensor_bytes) {
  DirectFrame frame;
  frame.set_call(7);
  frame.mutable_answer();
  for (const uint64_t bytes : slices) frame.add_slices()->set_bytes(bytes);
  std::string head = frame.SerializeAsString();
  std::string bytes = OneSlice().substr(0, 4);
  const auto frame_bytes = static_cast<uint32_t>(head.size());
  bytes.append(reinterpret_cast<const char*>(&frame_bytes), sizeof(frame_bytes));
  bytes.append(reinterpret_cast<const char*>(&tensor_bytes), sizeof(tensor_bytes));
  return bytes + head + std::string(tensor_bytes, '\0');
}

absl::Status Read(std::string_view bytes, FrameLimits limits = {}) {
  FrameReader reader(std::make_shared<ReceiveBuffers>(0), limits);
  std::vector<ReceivedFrame> whole;
  Random random(2);
  return ReadAll(reader, bytes, random, whole);
}

TEST(FrameTest, WhatIsNoFrameIsRefused) {
  ASSERT_TRUE(Read(OneSlice()).ok());
  EXPECT_EQ(OneSlice().size() % 64, (OneSlice().size() - 128) % 64) << "filled up to 64 bytes";
  std::string other = OneSlice();
  other[0] ^= 1;  // its first four
  EXPECT_TRUE(absl::IsInvalidArgument(Read(other)));
  other = OneSlice();
  other[7] = 0x7f;  // of 2 GB
  EXPECT_TRUE(absl::IsInvalidArgument(Read(other)));
  other = OneSlice();
  other[12] = 1;  // 4 GiB of tensors
  EXPECT_TRUE(absl::IsInvalidArgument(Read(other)));
  other = OneSlice();
  other[8] = 64;  // of which its slice has more
  EXPECT_TRUE(absl::IsInvalidArgument(Read(other)));
  other = OneSlice();
  other[9] = 1;  // and of which it has less
  EXPECT_TRUE(absl::IsInvalidArgument(Read(other)));
  other = OneSlice();
  other[8] = static_cast<char>(other[8] + 1);  // not filled up
  EXPECT_TRUE(absl::IsInvalidArgument(Read(other)));
  other = OneSlice();
  for (size_t i = 16; i < 24; ++i) other[i] = static_cast<char>(0xff);  // no protobuf
  EXPECT_TRUE(absl::IsInvalidArgument(Read(other)));
}

TEST(FrameTest, SlicesBeyondTheTensorsAreRefused) {
  // Behind one that takes all: it would lie outside.
  EXPECT_TRUE(Read(Described({64, 64}, 128)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Read(Described({64, 64}, 64))));
  EXPECT_TRUE(absl::IsInvalidArgument(Read(Described({64, ~uint64_t{0}}, 64))));
  EXPECT_TRUE(absl::IsInvalidArgument(Read(Described({1, 64}, 65))));
}

// The bytes of a frame whose message is `head`, with no tensors.
std::string Framed(const std::string& head) {
  std::string bytes = OneSlice().substr(0, 4);
  const auto frame_bytes = static_cast<uint32_t>(head.size());
  bytes.append(reinterpret_cast<const char*>(&frame_bytes), sizeof(frame_bytes));
  return bytes + std::string(8, '\0') + head;
}

// So many slices of nothing, two bytes each.
std::string EmptySlices(size_t count) {
  std::string head(2 * count, '\0');
  for (size_t i = 0; i < count; ++i) head[2 * i] = '\x2a';
  return head;
}

// Of this process until now, in bytes.
size_t MostMemory() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return static_cast<size_t>(usage.ru_maxrss) << 10;
}

TEST(FrameTest, MoreSlicesThanAMessageHasAreRefusedBeforeTheyAreMade) {
  const std::string call("\x08\x07", 2);  // its number, 7
  EXPECT_EQ(Read(Framed(call + EmptySlices(kMostSlices))), absl::OkStatus());
  // They would take some 400 MiB.
  const std::string bomb = Framed(call + EmptySlices(2 << 20));
  const size_t before = MostMemory();
  EXPECT_TRUE(absl::IsInvalidArgument(Read(bomb)));
  EXPECT_LT(MostMemory() - before, size_t{64} << 20);
  // Nor other fields, which nobody knows.
  std::string unknown = call;
  for (size_t i = 0; i <= 2 * kMostSlices; ++i) unknown += "\x30\x01";
  EXPECT_TRUE(absl::IsInvalidArgument(Read(Framed(unknown))));
}

TEST(FrameTest, AGreetingIsSmallAndHasNoTensors) {
  DirectFrame hello;
  hello.set_call(1);
  hello.set_hello(~uint64_t{0});
  EXPECT_EQ(Read(Framed(hello.SerializeAsString()), kGreetingLimits), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(Read(OneSlice(), kGreetingLimits)));
  EXPECT_TRUE(absl::IsInvalidArgument(Read(Framed(EmptySlices(100)), kGreetingLimits)));
  // A large one by its first bytes.
  const std::string large = Framed(std::string(kGreetingLimits.frame_bytes + 1, '\0'));
  EXPECT_TRUE(absl::IsInvalidArgument(Read(large.substr(0, 16), kGreetingLimits)));
  EXPECT_EQ(Read(large.substr(0, 16)), absl::OkStatus());
}

TEST(FrameTest, TensorsLiveAsLongAsTheirOwner) {
  FrameReader reader(std::make_shared<ReceiveBuffers>(1 << 20));
  std::vector<ReceivedFrame> whole;
  Random random(3);
  ASSERT_TRUE(ReadAll(reader, OneSlice(), random, whole).ok());
  const TensorSlice kept = whole.at(0).slices.at(0);
  whole.clear();
  ASSERT_TRUE(ReadAll(reader, OneSlice(), random, whole).ok());
  EXPECT_NE(whole.at(0).slices.at(0).bytes.pieces().front().data(),
            kept.bytes.pieces().front().data());
}

}  // namespace
}  // namespace parley
