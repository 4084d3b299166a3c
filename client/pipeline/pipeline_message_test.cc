#include "client/pipeline/pipeline_message.h"

#include <gtest/gtest.h>

#include <memory>

#include "client/pipeline/pipeline_inbox.h"

namespace parley {
namespace {

PipelineKey Key(uint64_t composition, uint64_t unit, uint32_t microbatch,
                PipelineKind kind = PipelineKind::kActivation) {
  PipelineKey key;
  key.job_epoch = 1;
  key.composition = composition;
  key.unit = unit;
  key.kind = kind;
  key.part = 2;
  key.microbatch = microbatch;
  return key;
}

ValuePtr Message(const PipelineKey& key) {
  return std::make_shared<const RemoteValue>(ToValue(key, {}));
}

TEST(PipelineMessage, AKeyIsReadBackAsItWas) {
  const PipelineKey key = Key(7, 9, 3, PipelineKind::kResult);
  const auto read = KeyOf(ToValue(key, {TensorOf(std::vector<double>{1.5})}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, key);
}

TEST(PipelineMessage, NumbersAndWorkAreReadBackAsTheyWere) {
  EXPECT_EQ(*DoublesOf(TensorOf(std::vector<double>{1.5, -2})), (std::vector<double>{1.5, -2}));
  const PipelineWork work = {PipelineWork::Kind::kEvaluation, 40, 5, 2};
  const auto read = WorkOf(ToValue(Key(1, 1, 0, PipelineKind::kWork), ToTensors(work)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kind, PipelineWork::Kind::kEvaluation);
  EXPECT_EQ(read->version, 40);
  EXPECT_EQ(read->microbatches, 5);
  EXPECT_EQ(read->steps, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(
      WorkOf(ToValue(Key(1, 1, 0), ToTensors({PipelineWork::Kind::kStep, 1, 1, 0}))).status()))
      << "of no steps";
}

TEST(PipelineMessage, WhatIsNoneIsRefused) {
  RemoteValue empty;
  EXPECT_TRUE(absl::IsInvalidArgument(KeyOf(empty).status()));
  RemoteValue short_one;
  short_one.tensors.push_back(TensorOf(std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(absl::IsInvalidArgument(KeyOf(short_one).status()));
  RemoteValue unknown;
  unknown.tensors.push_back(TensorOf(std::vector<int64_t>{1, 2, 3, 17, 0, 0}));
  EXPECT_TRUE(absl::IsInvalidArgument(KeyOf(unknown).status()));
  for (const int64_t size : {int64_t{1} << 61, int64_t{-1}}) {
    RemoteValue hollow;
    ValueTensor& tensor = hollow.tensors.emplace_back();
    tensor.dtype = I64;
    tensor.shape = {size};
    EXPECT_TRUE(absl::IsInvalidArgument(KeyOf(hollow).status())) << size << " numbers in no bytes";
  }
  RemoteValue doubles;
  doubles.tensors.push_back(TensorOf(std::vector<double>{1, 2, 3, 1, 0, 0}));
  EXPECT_TRUE(absl::IsInvalidArgument(KeyOf(doubles).status()));
  ValueTensor longer = TensorOf(std::vector<double>{1, 2});
  longer.shape = {3};
  EXPECT_TRUE(absl::IsInvalidArgument(DoublesOf(longer).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(WorkOf(ToValue(Key(1, 1, 0), {})).status()));
}

TEST(PipelineInbox, MessagesAreTakenInAnyOrderAndOnce) {
  int woken = 0;
  PipelineInbox inbox([&] { ++woken; });
  inbox.Begin(1, 1, 1);
  for (const uint32_t k : {2, 0, 1}) inbox.Put(Key(1, 1, k), Message(Key(1, 1, k)));
  EXPECT_EQ(woken, 3);
  for (const uint32_t k : {0, 1, 2}) {
    EXPECT_TRUE(inbox.Has(Key(1, 1, k)));
    EXPECT_NE(inbox.Take(Key(1, 1, k)), nullptr);
    EXPECT_FALSE(inbox.Has(Key(1, 1, k)));
    EXPECT_EQ(inbox.Take(Key(1, 1, k)), nullptr);
  }
}

TEST(PipelineInbox, WhatIsOfAnEarlierUnitOrCompositionIsDropped) {
  PipelineInbox inbox([] {});
  inbox.Begin(1, 4, 1);
  inbox.Put(Key(4, 1, 0), Message(Key(4, 1, 0)));
  inbox.Put(Key(4, 2, 0), Message(Key(4, 2, 0)));  // somebody is ahead
  inbox.Put(Key(5, 1, 0), Message(Key(5, 1, 0)));  // somebody knows the next composition
  inbox.Put(Key(3, 9, 0), Message(Key(3, 9, 0)));
  EXPECT_FALSE(inbox.Has(Key(3, 9, 0)));
  inbox.Begin(1, 4, 2);
  EXPECT_FALSE(inbox.Has(Key(4, 1, 0)));
  EXPECT_TRUE(inbox.Has(Key(4, 2, 0)));
  inbox.Begin(1, 5, 1);
  EXPECT_FALSE(inbox.Has(Key(4, 2, 0)));
  EXPECT_TRUE(inbox.Has(Key(5, 1, 0)));
}

TEST(PipelineInbox, WhatCannotBeTakenInEndsEachWait) {
  PipelineInbox inbox([] {});
  inbox.Fail(absl::InvalidArgumentError("too large"));
  EXPECT_TRUE(inbox.Has(Key(1, 1, 0)));
  EXPECT_EQ(inbox.error().message(), "too large");
}

}  // namespace
}  // namespace parley
