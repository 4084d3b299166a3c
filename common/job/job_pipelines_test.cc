// What the job file says of pipelines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/job/job_file.h"

namespace parley {
namespace {

using testing::HasSubstr;

absl::StatusOr<JobConfig> Load(const std::string& cluster, const std::string& rest = "") {
  const std::string path = testing::TempDir() + "/pipeline.textproto";
  std::ofstream(path) << "name: \"pipeline\"\n"
                      << "model { resnet { depth: 18 } }\n"
                      << "data { idx { directory: \"data\" } batch: 4 }\n"
                      << "optimizer { sgd { rate: 1 } }\nepochs: 1\n"
                      << "cluster { " << cluster << " }\n"
                      << rest;
  return LoadJob(path, {});
}

TEST(JobPipelines, DefaultsAreThoseOfPipelines) {
  const auto job = Load("workers: 2 stages: 2");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->pipeline().schedule(), ONE_F_ONE_B);
  EXPECT_EQ(job->pipeline().parts_per_stage(), 1);
  EXPECT_EQ(job->consistency().sync().lost_worker(), WAIT);
  EXPECT_EQ(Load("stages: 2", "pipeline { schedule: INTERLEAVED }")->pipeline().parts_per_stage(),
            2);
  EXPECT_FALSE(Load("workers: 2")->has_pipeline());
}

TEST(JobPipelines, StagesComputeOnGpusUnderTheSynchronousSchedules) {
  for (const std::string device : {"CUDA", "AUTO"}) {
    for (const std::string schedule :
         {"GPIPE", "ONE_F_ONE_B", "EAGER", "INTERLEAVED", "ZERO_BUBBLE", "CHIMERA"}) {
      const auto job =
          Load("stages: 2", "device: " + device + "\npipeline { schedule: " + schedule + " }");
      EXPECT_TRUE(job.ok()) << job.status();
    }
    for (const std::string schedule : {"PIPEDREAM", "TWO_BUFFER_WEIGHTS"}) {
      const auto job = Load(
          "stages: 2", "accumulate: " + std::string(schedule == "PIPEDREAM" ? "1" : "2") +
                           "\ndevice: " + device + "\npipeline { schedule: " + schedule + " }");
      EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(job.status().message()),
                  HasSubstr("8: device: must be CPU where pipeline.schedule is PIPEDREAM or "
                            "TWO_BUFFER_WEIGHTS"));
    }
  }
}

TEST(JobPipelines, WhatIsWrongIsSaidWithItsPlace) {
  const auto expect = [](const std::string& cluster, const std::string& rest,
                         const std::string& message) {
    const absl::Status status = Load(cluster, rest).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << cluster << " " << rest;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect("workers: 2 stages: 2 min_workers: 1", "", "6: cluster.min_workers: must be cluster.work");
  expect("stages: 4000000000", "", "6: cluster.stages: must be at least 1 and at most 4096");
  expect("workers: 2", "pipeline {}", "7: pipeline: is of jobs with stages");
  expect("stages: 2", "pipeline { parts_per_stage: 2 }",
         "7: pipeline.parts_per_stage: must be 1 or left out, unless pipeline.schedule is INTERL");
  expect("stages: 3", "pipeline { cut_before: \"fc\" }", "must name 2 layers, not 1");
  expect("stages: 3", "pipeline { stage_speed: 1 stage_speed: 2 }", "must have 3 numbers, one for");
  expect("stages: 2", "pipeline { stage_speed: 1 stage_speed: 0 }", "must be at least 0.001");
  expect("stages: 2", "pipeline { stage_speed: 1 stage_speed: nan }", "must be at least 0.001");
  expect("stages: 2", "consistency { async {} }", "7: consistency: must be sync");
  expect("workers: 2 stages: 2", "consistency { sync { lost_worker: GO_ON } }",
         "7: consistency.sync.lost_worker: must be WAIT");
  expect("stages: 2", "accumulate: 2 pipeline { schedule: PIPEDREAM }", "accumulate: must be 1 or");
  expect("stages: 3", "accumulate: 2 pipeline { schedule: TWO_BUFFER_WEIGHTS }",
         "accumulate: must be at least cluster.stages, 3, where");
  expect("stages: 2", "pipeline { forwards_ahead: 1 }", "7: pipeline.forwards_ahead: ");
}

}  // namespace
}  // namespace parley
