// NcclGroup over functions of the test's own: what a lost rank does to it, without any GPU.
#include "worker/cuda/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kTick = absl::Milliseconds(10);

// What the functions below answer, and what was called. One test at a time.
struct Script {
  ncclResult_t begun = ncclInProgress;
  ncclResult_t call = ncclInProgress;
  ncclResult_t part = ncclInProgress;                // of a group of calls
  std::vector<ncclResult_t> states = {ncclSuccess};  // one after the other; the last one stays
  std::vector<std::string> called;
  int blocking = -1;
  int gpu = 3;  // of this thread
  int aborted_on = -1;

  ncclResult_t NextState() {
    const ncclResult_t state = states.front();
    if (states.size() > 1) states.erase(states.begin());
    return state;
  }
};
Script* script = nullptr;

ncclComm_t TheCommunicator() { return reinterpret_cast<ncclComm_t>(&script->called); }

ncclResult_t Init(ncclComm_t* communicator, int, ncclUniqueId, int, ncclConfig_t* config) {
  script->blocking = config->blocking;
  *communicator = TheCommunicator();
  return script->begun;
}
ncclResult_t AsyncError(ncclComm_t, ncclResult_t* state) {
  *state = script->NextState();
  return ncclSuccess;
}
ncclResult_t ReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t) {
  script->called.push_back("reduce-scatter");
  return script->call;
}
ncclResult_t AllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  script->called.push_back("all-gather");
  return script->call;
}
ncclResult_t Finalize(ncclComm_t) {
  script->called.push_back("finalize");
  return ncclInProgress;
}
ncclResult_t Destroy(ncclComm_t) {
  script->called.push_back("destroy");
  return ncclSuccess;
}
cudaError_t GetDevice(int* device) {
  *device = script->gpu;
  return cudaSuccess;
}
cudaError_t SetDevice(int device) {
  script->gpu = device;
  return cudaSuccess;
}
ncclResult_t Abort(ncclComm_t) {
  script->aborted_on = script->gpu;
  script->called.push_back("abort");
  return ncclSuccess;
}
const char* ErrorText(ncclResult_t result) {
  return result == ncclRemoteError ? "remote error" : "another error";
}
ncclResult_t GroupStart() {
  script->called.push_back("group");
  return ncclSuccess;
}
ncclResult_t GroupEnd() {
  script->called.push_back("end");
  return script->call;
}
ncclResult_t ReduceTo(const void* send, void* receive, size_t count, ncclDataType_t, ncclRedOp_t,
                      int root, ncclComm_t, cudaStream_t) {
  script->called.push_back(absl::StrCat("reduce ", count, " at ", reinterpret_cast<uintptr_t>(send),
                                        " to rank ", root, " at ",
                                        reinterpret_cast<uintptr_t>(receive)));
  return script->part;
}
ncclResult_t BroadcastOf(const void* send, void* receive, size_t count, ncclDataType_t, int root,
                         ncclComm_t, cudaStream_t) {
  script->called.push_back(absl::StrCat("broadcast ", count, " at ",
                                        reinterpret_cast<uintptr_t>(send), " of rank ", root,
                                        " to ", reinterpret_cast<uintptr_t>(receive)));
  return script->part;
}

constexpr NcclApi kApi = {&Init,        &AsyncError,    &GroupStart, &GroupEnd, &ReduceTo,
                          &BroadcastOf, &ReduceScatter, &AllGather,  &Finalize, &Destroy,
                          &Abort,       &ErrorText,     &GetDevice,  &SetDevice};

class NcclGroupTest : public ::testing::Test {
 protected:
  NcclGroupTest() { script = &script_; }

  absl::StatusOr<std::unique_ptr<NcclGroup>> Join() {
    DeviceGroup::Options options;
    options.id = std::string(sizeof(ncclUniqueId), 'x');
    options.epoch = 4;
    options.rank = 1;
    options.ranks = 2;
    options.cancelled = [this] { return cancelled_; };
    return NcclGroup::Join(kApi, nullptr, options, Soon(),
                           {[this] { return now_; },
                            [this] {
                              now_ += kTick;
                              if (pause_) pause_();
                            }});
  }
  absl::Time Soon() const { return now_ + absl::Seconds(1); }
  absl::Status Reduce(NcclGroup& group) {
    return group.ReduceScatter(nullptr, nullptr, 8, BucketType::kFloat32, Soon());
  }

  Script script_;
  absl::Time now_ = absl::UnixEpoch();
  std::function<void()> pause_;
  bool cancelled_ = false;
};

absl::StatusOr<bool> Done() { return true; }
absl::StatusOr<bool> NotDone() { return false; }

TEST_F(NcclGroupTest, ItsCommunicatorDoesNotBlockAndIsReadyWhenAllHaveJoined) {
  script_.states = {ncclInProgress, ncclInProgress, ncclSuccess};
  const auto group = Join();
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(script_.blocking, 0);
  EXPECT_EQ(now_, absl::UnixEpoch() + 2 * kTick);
}

TEST_F(NcclGroupTest, ARankThatNeverJoinsEndsInAnAbortAtTheDeadline) {
  script_.states = {ncclInProgress};
  const auto group = Join();
  EXPECT_EQ(group.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("rank 1 of 2 in epoch 4"));
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("joining"));
  EXPECT_THAT(script_.called, ElementsAre("abort"));
  EXPECT_LE(now_, absl::UnixEpoch() + absl::Seconds(1) + 2 * kTick);
}

TEST_F(NcclGroupTest, OneThatCannotBeginIsAbortedAndHasNothingToLeave) {
  script_.begun = ncclSystemError;
  EXPECT_EQ(Join().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(script_.called, ElementsAre("abort"));
}

TEST_F(NcclGroupTest, WhatIsUnderWayIsAwaitedAndAGroupIsLeftInAnOrderlyWay) {
  {
    const auto group = *Join();
    script_.states = {ncclInProgress, ncclSuccess};
    EXPECT_TRUE(Reduce(*group).ok());
    script_.call = ncclSuccess;
    EXPECT_TRUE(group->AllGather(nullptr, nullptr, 8, BucketType::kBFloat16, Soon()).ok());
    EXPECT_TRUE(group->Await(Done, Soon()).ok());
  }
  EXPECT_THAT(script_.called, ElementsAre("reduce-scatter", "all-gather", "finalize", "destroy"));
}

TEST_F(NcclGroupTest, ALostRankIsUnavailableAndTheGroupIsAbortedOnce) {
  {
    const auto group = *Join();
    script_.states = {ncclInProgress, ncclRemoteError};
    const absl::Status lost = Reduce(*group);
    EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(lost.message()), HasSubstr("remote error"));
    script_.states = {ncclSuccess};
    EXPECT_EQ(Reduce(*group), lost) << "it is not used any more";
    EXPECT_EQ(group->Await(Done, Soon()), lost);
    group->Abort();
    EXPECT_EQ(Reduce(*group), lost) << "the first error counts";
  }
  EXPECT_THAT(script_.called, ElementsAre("reduce-scatter", "abort"));
}

TEST_F(NcclGroupTest, AStreamThatHangsEndsInAnAbortAtTheDeadline) {
  const auto group = *Join();
  ASSERT_TRUE(Reduce(*group).ok());
  EXPECT_EQ(group->Await(NotDone, Soon()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(script_.called, ElementsAre("reduce-scatter", "abort"));
}

TEST_F(NcclGroupTest, ACallThatIsRefusedAbortsIt) {
  const auto group = *Join();
  script_.call = ncclInvalidUsage;
  EXPECT_EQ(Reduce(*group).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(script_.called, ElementsAre("reduce-scatter", "abort"));
}

TEST_F(NcclGroupTest, AnAbortFromAnotherThreadEndsAWait) {
  const auto group = *Join();
  pause_ = [&] { group->Abort(); };
  EXPECT_EQ(group->Await(NotDone, Soon()).code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(script_.called, ElementsAre("abort"));
}

TEST_F(NcclGroupTest, WhatAnAbortHasEndedIsNotDone) {
  const auto group = *Join();
  const auto ended_by_abort = [&]() -> absl::StatusOr<bool> {
    group->Abort();  // by another thread
    return true;
  };
  EXPECT_EQ(group->Await(ended_by_abort, Soon()).code(), absl::StatusCode::kCancelled);
}

TEST_F(NcclGroupTest, AThreadThatHasChosenNoGpuAbortsOnTheGroups) {
  const auto group = *Join();
  script_.gpu = 0;
  group->Abort();
  EXPECT_EQ(script_.aborted_on, 3);
}

TEST_F(NcclGroupTest, SumsOfManyPartsAreOneGroupOfCalls) {
  const auto group = *Join();
  auto* const values = reinterpret_cast<std::byte*>(1000);
  const std::vector<DeviceGroup::Part> parts = {{0, 0, 8, 1}, {8, 20, 2, 0}};
  EXPECT_TRUE(group->Reduce(values, parts, BucketType::kFloat32, Soon()).ok());
  EXPECT_THAT(script_.called, ElementsAre("group", "reduce 8 at 1000 to rank 1 at 1000",
                                          "reduce 2 at 1032 to rank 0 at 1080", "end"));
  script_.called.clear();
  script_.part = ncclInvalidArgument;
  EXPECT_EQ(group->Reduce(values, parts, BucketType::kBFloat16, Soon()).code(),
            absl::StatusCode::kInternal);
  EXPECT_THAT(script_.called,
              ElementsAre("group", "reduce 8 at 1000 to rank 1 at 1000", "end", "abort"))
      << "what was begun is ended";
}

TEST_F(NcclGroupTest, ManyPartsAreSentToAllInOneGroupOfCalls) {
  const auto group = *Join();
  auto* const values = reinterpret_cast<std::byte*>(1000);
  const std::vector<DeviceGroup::Part> parts = {{0, 0, 8, 1}, {8, 20, 2, 0}};
  EXPECT_TRUE(group->Broadcast(values, parts, BucketType::kFloat32, Soon()).ok());
  EXPECT_THAT(script_.called, ElementsAre("group", "broadcast 8 at 1000 of rank 1 to 1000",
                                          "broadcast 2 at 1032 of rank 0 to 1080", "end"));
}

TEST_F(NcclGroupTest, WhoIsNotWantedAnyMoreDoesNotWaitForTheOthers) {
  script_.states = {ncclInProgress};
  pause_ = [this] { cancelled_ = true; };
  const auto group = Join();
  EXPECT_EQ(group.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(now_, absl::UnixEpoch() + kTick);
  EXPECT_THAT(script_.called, ElementsAre("abort"));
}

TEST_F(NcclGroupTest, AnIdOfAnotherSizeIsRefused) {
  DeviceGroup::Options options;
  options.id = "short";
  EXPECT_EQ(NcclGroup::Join(kApi, nullptr, options, Soon(), NcclGroup::RealClock()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(script_.called, IsEmpty());
}

}  // namespace
}  // namespace parley
