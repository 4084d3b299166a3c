#ifndef PARLEY_COMMON_JOB_JOB_FILE_FIXTURE_H_
#define PARLEY_COMMON_JOB_JOB_FILE_FIXTURE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_file.h"

namespace parley {

// A job file that is right, in a folder of the test's own.
class JobFile : public testing::Test {
 protected:
  static constexpr char kGood[] = R"(
name: "small"
seed: 3
model { simple_cnn {} }
data { idx { directory: "data" } batch: 20 }
optimizer { adam { rate: 0.001 } }
cluster { workers: 2 shards: 2 }
threads: 1
liveness: "10s"
epochs: 1
)";

  JobFile() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }

  std::string Write(const std::string& text, const std::string& name = "job.textproto") {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  absl::StatusOr<JobConfig> Load(const std::string& text,
                                 const std::vector<std::string>& overrides = {}) {
    return LoadJob(Write(text), overrides);
  }

  std::filesystem::path folder_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_JOB_FILE_FIXTURE_H_
