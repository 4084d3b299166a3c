// What the job file says of node groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/job/job_file.h"

namespace parley {
namespace {

using testing::HasSubstr;

absl::StatusOr<JobConfig> Load(const std::string& cluster, const std::string& rest = "",
                               const std::string& model = "simple_cnn {}") {
  const std::string path = testing::TempDir() + "/group.textproto";
  std::ofstream(path) << "name: \"group\"\n"
                      << "model { " << model << " }\n"
                      << "data { idx { directory: \"data\" } batch: 4 }\n"
                      << "optimizer { sgd { rate: 1 } }\nepochs: 1\n"
                      << "cluster { " << cluster << " }\n"
                      << rest;
  return LoadJob(path, {});
}

TEST(JobGroups, AGroupThatHasLostAWorkerWaitsByDefault) {
  const auto job = Load("workers: 8 group: 4");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->cluster().group(), 4u);
  EXPECT_EQ(job->consistency().sync().lost_worker(), WAIT);
  const auto without = Load("workers: 8");
  EXPECT_EQ(without->cluster().group(), 1u);
  EXPECT_EQ(without->consistency().sync().lost_worker(), GO_ON);
}

TEST(JobGroups, GpusAddUpByDefaultButThoseOfAProgramOfOnesOwn) {
  const auto job = Load("workers: 8 group: 4", "device: CUDA");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->cluster().group_reduction(), ON_GPUS);
  const auto own = Load("workers: 8 group: 4", "device: CUDA", "own {}");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->cluster().group_reduction(), ON_HOST);
  const auto asked = Load("workers: 8 group: 4 group_reduction: ON_GPUS", "device: CUDA", "own {}");
  EXPECT_EQ(asked.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(asked.status().message()),
              HasSubstr("6: cluster.group_reduction: must be ON_HOST or left out where model"));
}

TEST(JobGroups, WhatIsWrongIsSaidWithItsPlace) {
  const auto expect = [](const std::string& cluster, const std::string& rest,
                         const std::string& message) {
    const absl::Status status = Load(cluster, rest).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << cluster << " " << rest;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect("workers: 4 group: 0", "", "6: cluster.group: must be at least 1");
  expect("workers: 2 group: 4", "", "6: cluster.group: must be at least 1 and at most 2");
  expect("workers: 6 group: 4", "", "6: cluster.group: must divide cluster.workers, 6, which 4");
  expect("workers: 4 group: 2 stages: 2", "", "6: cluster.group: must be 1 or left out where");
  expect("workers: 4 group: 2 min_workers: 2", "", "6: cluster.min_workers: must be cluster.work");
  expect("workers: 4 group: 2", "consistency { bounded {} }", "7: consistency: must be sync where");
  expect("workers: 4 group: 2", "consistency { async {} }", "7: consistency: must be sync where");
  expect("workers: 4 group: 2", "consistency { sync { backup: 1 } }",
         "7: consistency.sync.backup: must be 0 or left out where cluster.group");
  expect("workers: 4 group: 2", "consistency { sync { lost_worker: GO_ON } }",
         "7: consistency.sync.lost_worker: must be WAIT or left out where cluster.group");
}

}  // namespace
}  // namespace parley
