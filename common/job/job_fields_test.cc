#include "common/job/job_fields.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace parley {
namespace {

using Texts = std::vector<std::string>;

JobConfig Job() {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(name: "a \"job\"" threads: 0 loss: CROSS_ENTROPY
         cluster { workers: 3 slurm { partition: "gpu" options: "--exclusive" options: "--nice=5" } }
         checkpoint { at_end: false } pipeline { stage_speed: 0.5 })",
      &job));
  return job;
}

TEST(JobFields, AreTextAsScriptsTakeIt) {
  const JobConfig job = Job();
  EXPECT_EQ(*FieldTexts(job, "name"), Texts{"a \"job\""});
  EXPECT_EQ(*FieldTexts(job, "cluster.workers"), Texts{"3"});
  EXPECT_EQ(*FieldTexts(job, "loss"), Texts{"CROSS_ENTROPY"});
  EXPECT_EQ(*FieldTexts(job, "checkpoint.at_end"), Texts{"false"});
  EXPECT_EQ(*FieldTexts(job, "pipeline.stage_speed"), Texts{"0.5"});
  EXPECT_EQ(*FieldTexts(job, "cluster.slurm.partition"), Texts{"gpu"});
  EXPECT_EQ(*FieldTexts(job, "cluster.slurm.options"), (Texts{"--exclusive", "--nice=5"}));
  EXPECT_EQ(*FieldTexts(job, "threads"), Texts{"0"}) << "set, if to 0";
}

TEST(JobFields, ThatAreNotSetHaveNoText) {
  const JobConfig job = Job();
  for (const char* path : {"cluster.shards", "cluster.slurm.account", "cluster.slurm.worker_gpus",
                           "optimizer.adam.rate", "steps"}) {
    EXPECT_EQ(*FieldTexts(job, path), Texts()) << path;
  }
}

TEST(JobFields, ThatThereAreNotAreRefused) {
  const JobConfig job = Job();
  for (const char* path :
       {"", ".", "nothing", "cluster", "cluster.", "cluster.nothing", "name.first",
        "cluster.slurm.options.first", "optimizer.overrides.pattern"}) {
    EXPECT_EQ(FieldTexts(job, path).status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

}  // namespace
}  // namespace parley
