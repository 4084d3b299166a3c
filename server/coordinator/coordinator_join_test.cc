#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;

TEST(CoordinatorTest, MembersMayJoinInAnyOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CoordinatorFixture job(3, 4);
    std::vector<Role> roles = {SHARD, SHARD, SHARD, WORKER, WORKER, WORKER, WORKER};
    std::mt19937_64 random(seed);
    std::shuffle(roles.begin(), roles.end(), random);
    std::set<std::pair<Role, uint32_t>> places;
    std::set<uint64_t> ids;
    for (Role role : roles) {
      ASSERT_EQ(job.core.phase(), GATHERING);
      auto& process = job.StartAndJoin(role);
      EXPECT_TRUE(places.insert({role, process.ordinal}).second);
      EXPECT_TRUE(ids.insert(process.header.member()).second);
      // Some register as soon as they can, others when all are there.
      if (role == WORKER && random() % 2 == 0) {
        ASSERT_TRUE(job.Register(process).ok());
      }
    }
    for (auto& process : job.processes) {
      if (process->role == WORKER) {
        ASSERT_TRUE(job.Register(*process).ok());
      }
    }
    EXPECT_EQ(job.core.phase(), PREPARING) << "seed " << seed;
    EXPECT_EQ(places.rbegin()->second, 3u);
  }
}

TEST(CoordinatorTest, TheViewNamesContributorsSlicesAndStepLeader) {
  CoordinatorFixture job(2, 3);
  job.Gather();
  const ClusterView view = (*job.workers[0]->watched)->view();
  EXPECT_EQ(view.view_epoch(), 1u);
  EXPECT_EQ(view.job_epoch(), 1u);
  EXPECT_EQ(view.first_step(), 1u);
  EXPECT_EQ(view.members_size(), 5);
  ASSERT_EQ(view.contributors_size(), 3);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(view.contributors(i).ordinal(), i);
    ASSERT_EQ(view.contributors(i).part_members_size(), 1);
    EXPECT_EQ(view.contributors(i).part_members(0), job.workers[i]->header.member());
  }
  EXPECT_EQ(view.tensors_size(), 2);
  EXPECT_EQ(view.slices_size(), 3);  // fc1.weight has 524,288 elements
  EXPECT_EQ(view.step_leader(), 0u);
  EXPECT_EQ(view.start_from(), "");
  EXPECT_EQ(view.training_samples(), 100u);
  EXPECT_EQ(view.test_samples(), 20u);
  EXPECT_EQ(view.total_steps(), 8u);  // 30 samples a step: 4 steps an epoch
}

TEST(CoordinatorTest, JoinRepeatedByTheSameIncarnationGivesTheSameAnswer) {
  CoordinatorFixture job(1, 2);
  auto& worker = job.StartAndJoin(WORKER);
  const auto before = worker.header;
  ASSERT_TRUE(job.Join(worker).ok());
  EXPECT_EQ(worker.header.member(), before.member());
  EXPECT_EQ(worker.ordinal, 0u);
  EXPECT_EQ(job.StartAndJoin(WORKER).ordinal, 1u);
  ASSERT_TRUE(job.Join(worker).ok());
  EXPECT_EQ(worker.header.member(), before.member());
}

TEST(CoordinatorTest, TheLastShardMayJoinAfterAllWorkersHaveRegistered) {
  CoordinatorFixture job(2, 2);
  job.StartAndJoin(SHARD);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
  auto& watcher = job.StartAndJoin(SHARD);
  EXPECT_EQ(job.core.phase(), PREPARING);
  job.Watch(watcher);
  ASSERT_TRUE(watcher.watched.has_value() && watcher.watched->ok());
  EXPECT_GT((*watcher.watched)->view().slices_size(), 0);
}

TEST(CoordinatorTest, AFullRoleTakesNobodyElse) {
  CoordinatorFixture job(1, 1);
  job.StartAndJoin(WORKER);
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(job.Join(job.Start(STAGE)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Join(job.Start(COORDINATOR)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(job.Join(job.Start(SHARD)).ok());
}

TEST(CoordinatorTest, AnotherJobIsRefusedWithBothFingerprints) {
  CoordinatorFixture job(1, 1);
  auto& worker = job.Start(WORKER);
  JoinRequest request = job.JoinOf(worker);
  request.set_job_fingerprint("00000000000000bb");
  Replies replies;
  const absl::Status status = job.core.Join(request, job.now, replies).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("00000000000000aa"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("00000000000000bb"), absl::string_view::npos) << status;
  worker.header.set_job("letters");
  EXPECT_EQ(job.Join(worker).code(), StatusCode::kNotFound);
}

TEST(CoordinatorTest, WorkersThatTrainDifferentModelsAreTold) {
  CoordinatorFixture job(1, 2);
  auto& first = job.StartAndJoin(WORKER);
  auto& second = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(first).ok());
  RegisterModelRequest other = CoordinatorFixture::Model();
  other.mutable_tensors(1)->set_shape(0, 2);
  const absl::Status status = job.Register(second, other);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'fc1.bias' F32 [2, 1024] here"), absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find("worker 0 at 127.0.0.1:4100"), absl::string_view::npos) << status;
  other = CoordinatorFixture::Model();
  other.set_training_samples(99);
  EXPECT_EQ(job.Register(second, other).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(job.Register(second).ok());
}

TEST(CoordinatorTest, ATrainedTensorOfATypeThatNoOptimizerKnowsIsRefusedWhenItIsRegistered) {
  CoordinatorFixture job(1, 1);
  auto& worker = job.StartAndJoin(WORKER);
  for (const DataType dtype : {F16, BF16, I64, BOOL}) {
    RegisterModelRequest model = CoordinatorFixture::Model();
    model.mutable_tensors(1)->set_dtype(dtype);
    const absl::Status status = job.Register(worker, model);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << DataType_Name(dtype);
    EXPECT_NE(status.message().find(DataType_Name(dtype)), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("'fc1.bias'"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("F32 or F64"), absl::string_view::npos) << status;
  }
  RegisterModelRequest model = CoordinatorFixture::Model();
  model.mutable_tensors(0)->set_dtype(F64);
  model.mutable_tensors(1)->set_dtype(I64);
  model.mutable_tensors(1)->set_buffer(true);
  EXPECT_TRUE(job.Register(worker, model).ok()) << "a buffer may be of any type";
}

TEST(CoordinatorTest, TheListOfEndpointsFollowsTheMembers) {
  CoordinatorFixture job(1, 1);
  const uint64_t before = job.core.membership_revision();
  auto& shard = job.StartAndJoin(SHARD);
  EXPECT_GT(job.core.membership_revision(), before);
  ASSERT_EQ(job.core.Members().size(), 1u);
  EXPECT_EQ(job.core.Members()[0].metrics_address(), "127.0.0.1:9100");
  const uint64_t joined = job.core.membership_revision();
  ASSERT_TRUE(job.Heartbeat(shard).ok());
  ASSERT_TRUE(job.Join(shard).ok());
  EXPECT_EQ(job.core.membership_revision(), joined);
}

TEST(CoordinatorTest, WhatAMemberSaysOfItselfIsShortAndPrintable) {
  CoordinatorFixture job(1, 1);
  auto& worker = job.Start(WORKER);
  const auto join = [&](void (*say)(JoinRequest&, const std::string&), const std::string& what) {
    JoinRequest request = job.JoinOf(worker);
    say(request, what);
    Replies replies;
    return job.core.Join(request, job.now, replies).status();
  };
  using Say = void (*)(JoinRequest&, const std::string&);
  const Say address = [](JoinRequest& request, const std::string& said) {
    request.set_address(said);
  };
  const Say metrics = [](JoinRequest& request, const std::string& said) {
    request.set_metrics_address(said);
  };
  const Say host = [](JoinRequest& request, const std::string& said) { request.set_host(said); };
  for (const Say say : {address, metrics, host}) {
    for (const std::string& what : {std::string(1025, 'a'), std::string("node\n7"),
                                    std::string("node\0", 5), std::string("\x1b[2J")}) {
      EXPECT_EQ(join(say, what).code(), StatusCode::kInvalidArgument) << what;
    }
  }
  EXPECT_EQ(job.core.DurableState().members_size(), 0);
  for (const Say say : {address, metrics}) EXPECT_TRUE(join(say, "").ok());
  EXPECT_TRUE(join(host, std::string(1024, 'a')).ok());
}

TEST(CoordinatorTest, MembersThatHaveGoneAreForgottenInTime) {
  for (const bool training : {false, true}) {
    auto options = CoordinatorFixture::DefaultOptions(1, 2);
    options.job.mutable_cluster()->set_min_workers(1);
    CoordinatorFixture job(options);
    CallHeader first;
    if (training) {
      job.Train();
      first = job.workers[1]->header;
    } else {
      job.StartAndJoin(SHARD);
      first = job.StartAndJoin(WORKER).header;
    }
    auto& process = *job.processes.back();  // and its successors at its address
    CallHeader before = first;
    CallHeader lately = first;
    size_t bytes = 0;
    for (int i = 1; i <= 10'000; ++i) {
      before = process.header;
      if (i == 9'900) lately = process.header;
      process.header.set_incarnation(1'000'000 + static_cast<uint64_t>(i));
      ASSERT_TRUE(job.Join(process).ok());
      ASSERT_TRUE(job.Register(process).ok());
      if (i == 1000) bytes = job.core.DurableState().ByteSizeLong();
    }
    // Numbers have got longer.
    EXPECT_LT(job.core.DurableState().ByteSizeLong(), bytes + bytes / 20);
    EXPECT_LT(bytes, 50'000u);
    EXPECT_TRUE(job.Heartbeat(process).ok());
    for (const CallHeader& gone : {first, before}) {
      auto& old = job.Start(WORKER);
      old.header = gone;
      EXPECT_EQ(job.Heartbeat(old).code(), StatusCode::kAborted);
    }
    for (const CallHeader& gone : {lately, before}) {
      auto& again = job.Start(WORKER);
      again.header = gone;
      EXPECT_EQ(job.Join(again).code(), StatusCode::kAborted) << "it may be under way twice";
    }
    CoordinatorCore next(options);
    EXPECT_TRUE(next.Restore(job.core.DurableState()).ok());
    if (training) {
      EXPECT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
    } else {
      ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
      EXPECT_EQ(job.core.phase(), PREPARING);
    }
  }
}

TEST(CoordinatorTest, TheLastOneOfAPlaceIsNotForgotten) {
  auto options = CoordinatorFixture::DefaultOptions(1, 3);
  options.job.mutable_cluster()->set_min_workers(1);
  CoordinatorFixture job(options);
  job.Train();
  auto& early = *job.workers[2];
  early.alive = false;
  job.Pass(absl::Seconds(11));
  auto& process = *job.workers[1];
  for (int i = 1; i <= 1000; ++i) {
    process.header.set_incarnation(1'000'000 + static_cast<uint64_t>(i));
    ASSERT_TRUE(job.Join(process).ok());
  }
  EXPECT_EQ(job.Join(early).code(), StatusCode::kAborted);
  EXPECT_EQ(job.StartAndJoin(WORKER).ordinal, 2u);
}

}  // namespace
}  // namespace parley
