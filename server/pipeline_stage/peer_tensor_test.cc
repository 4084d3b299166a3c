#include "server/pipeline_stage/peer_tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "client/pipeline/pipeline_message.h"

namespace parley {
namespace {

TEST(PeerTensor, ComesAsItWasSent) {
  const PeerTensor sent = {"a block", 4096, 256, F32, {3, 0, 5}};
  const PeerTensor second = {std::string("\0\1", 2), 100, 0, I64, {2, 6}};
  const auto came = PeerTensorsOf(ToValues({sent, second}));
  ASSERT_TRUE(came.ok()) << came.status();
  ASSERT_EQ(came->size(), 2);
  EXPECT_EQ((*came)[0].handle, sent.handle);
  EXPECT_EQ((*came)[0].shape, sent.shape);
  EXPECT_EQ((*came)[1].handle, second.handle);
  EXPECT_EQ((*came)[1].block_bytes, 100);
  EXPECT_EQ((*came)[1].offset, 0);
  EXPECT_EQ((*came)[1].dtype, I64);
  EXPECT_EQ((*came)[1].shape, second.shape);
}

TEST(PeerTensor, WhatLiesNotInItsBlockIsRefused) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const PeerTensor& wrong :
       {PeerTensor{"b", 100, 0, F32, {26}}, PeerTensor{"b", 100, 104, U8, {0}},
        PeerTensor{"b", 100, 4, F32, {25}}, PeerTensor{"b", 100, uint64_t{0} - 4, F32, {1}},
        PeerTensor{"b", 100, 0, F32, {-1}}, PeerTensor{"b", 100, 0, F32, {most, most}},
        PeerTensor{"b", 100, 0, DATA_TYPE_UNSPECIFIED, {1}},
        PeerTensor{std::string(5000, 'x'), 100, 0, F32, {1}}}) {
    EXPECT_EQ(PeerTensorsOf(ToValues({wrong})).status().code(), absl::StatusCode::kInvalidArgument)
        << wrong.offset;
  }
}

TEST(PeerTensor, WhatIsNoneIsRefused) {
  const ValueTensor numbers = TensorOf(std::vector<int64_t>{100, 0, F32, 1});
  const ValueTensor handle = HandleValue("b");
  const std::vector<std::vector<ValueTensor>> wrong = {
      {},
      {numbers},
      {handle, numbers},
      {TensorOf(std::vector<int64_t>{100, 0}), handle},
      {TensorOf(std::vector<int64_t>{100, 0, 77}), handle},
      {TensorOf(std::vector<double>{100, 0, 1}), handle}};
  for (const auto& values : wrong) {
    EXPECT_EQ(PeerTensorsOf(values).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(PeerTensorsOf({numbers, handle})->size(), 1);
}

}  // namespace
}  // namespace parley
