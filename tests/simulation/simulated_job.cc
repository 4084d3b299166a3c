#include "tests/simulation/simulated_job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/job/job_file.h"

namespace parley {

JobConfig SimulatedJob(const std::string& rest) {
  // Of this process: bugs/find runs two simulations at a time in one folder.
  const std::string path = absl::StrCat(testing::TempDir(), "/simulated-", getpid(), ".textproto");
  std::ofstream(path) << R"(
      name: "simulated"
      model { own {} }
      data { own {} batch: 2 }
      checkpoint { at_end: false }
      liveness: "10s"
      stall_timeout: "5m"
      )" << rest;
  const absl::StatusOr<JobConfig> job = LoadJob(path, {});
  std::remove(path.c_str());
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return JobConfig();
  JobConfig simulated = *job;
  Checkpoint& checkpoint = *simulated.mutable_checkpoint();
  if (IsClocked(simulated)) {
    checkpoint.set_every("20s");
  } else {
    checkpoint.set_every_steps(10);
  }
  checkpoint.set_keep_last(2);
  return simulated;
}

}  // namespace parley
