#include "tests/parity/job_text.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "common/job/job_file.h"

namespace parley {

std::string WriteJob(const std::string& directory, const std::string& text) {
  const std::string path = directory + "/job.textproto";
  std::ofstream file(path);
  file << text << "\n";
  const auto unless = [&](const char* word, const char* line) {
    if (!absl::StrContains(text, word)) file << line << "\n";
  };
  unless("name: ", "name: \"parity\"");
  unless("model {", "model { own {} }");
  unless("data {", "data { own {} batch: 10 }");
  unless("cluster {", "cluster { workers: 2 shards: 2 }");
  if (!absl::StrContains(text, "epochs: ")) unless("\nsteps: ", "steps: 200");
  return path;
}

JobConfig JobFromText(const std::string& text) {
  std::string directory = "/tmp/parity_jobXXXXXX";
  EXPECT_NE(mkdtemp(directory.data()), nullptr);
  const auto job = LoadJob(WriteJob(directory, text), {});
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : JobConfig();
}

}  // namespace parley
