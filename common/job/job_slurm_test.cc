// What the job file asks Slurm for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/job/job_file.h"

namespace parley {
namespace {

using testing::HasSubstr;

absl::StatusOr<JobConfig> Load(const std::string& slurm,
                               const std::vector<std::string>& overrides = {}) {
  const std::string path = testing::TempDir() + "/slurm.textproto";
  std::ofstream(path) << "name: \"slurm\"\n"
                      << "model { simple_cnn {} }\n"
                      << "data { idx { directory: \"data\" } batch: 4 }\n"
                      << "optimizer { sgd { rate: 1 } }\nepochs: 1\n"
                      << "cluster { slurm { " << slurm << " } }\n";
  return LoadJob(path, overrides);
}

TEST(JobSlurm, WhatSbatchTakesIsTaken) {
  const auto job = Load(
      R"(partition: "gpu,long" account: "p-17" time_limit: "1-04:00:00" constraint: "a100|h100"
         memory: "16G" worker_cpus: 8 worker_gpus: 1 warning_seconds: 300
         options: "--exclude=n[1-3]" options: "--exclusive")");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->cluster().slurm().worker_cpus(), 8u);
  EXPECT_FALSE(job->cluster().slurm().has_shard_cpus());
  EXPECT_TRUE(Load("").ok());
}

TEST(JobSlurm, WhoIsWarnedEarlyHasMostOfThatTimeAndNoLessThanTheGrace) {
  EXPECT_EQ(WarningGrace(*Load("")), absl::Seconds(85)) << "of 120 s, the default";
  EXPECT_EQ(WarningGrace(*Load("warning_seconds: 300")), absl::Seconds(265));
  EXPECT_EQ(WarningGrace(*Load("warning_seconds: 0")), absl::Seconds(25));
  EXPECT_EQ(WarningGrace(*Load("", {"preemption_grace=2m"})), absl::Minutes(2));
  EXPECT_EQ(WarningGrace(*Load("", {"preemption_grace=0s"})), absl::ZeroDuration()) << "at once";
}

TEST(JobSlurm, WhatIsNoWordOfACommandLineIsRefused) {
  const auto expect = [](const std::string& slurm, const std::string& message) {
    const absl::Status status = Load(slurm).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << slurm;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect(R"(partition: "gpu long")", "6: cluster.slurm.partition: must be as sbatch takes it");
  expect(R"(account: "--wrap=x")", "6: cluster.slurm.account: must be as sbatch");
  expect(R"(time_limit: "4 hours")", "6: cluster.slurm.time_limit: must be as sbatch");
  expect(R"(memory: "16\nG")", "6: cluster.slurm.memory: must be");
  expect("worker_cpus: 0", "6: cluster.slurm.worker_cpus: must be at least 1");
  expect("shard_cpus: 5000", "6: cluster.slurm.shard_cpus: must be at least 1 and at most 4096");
  expect("worker_gpus: 5000", "6: cluster.slurm.worker_gpus: must be at least 0");
  expect(R"(options: "--exclusive" options: "-n3")", "options[1]: must be one of sbatch's long op");
  expect(R"(options: "--comment=a b")", "options[0]: must be one of sbatch's long options");
}

}  // namespace
}  // namespace parley
