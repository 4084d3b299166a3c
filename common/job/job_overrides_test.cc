// --set, which replaces fields of the job file.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/job/job_file_fixture.h"

namespace parley {
namespace {

TEST_F(JobFile, OverridesReplaceFields) {
  const auto job = Load(
      kGood, {"cluster.workers=4", "optimizer.sgd.rate=0.5", "name=my-job.1", "steps=9",
              "data.shuffle=false", "consistency.sync.reduction=SUM", "data.idx.directory='/x y'",
              "cluster.workers=5", "learning_rate={warmup_steps: 3 cosine {}}"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->cluster().workers(), 5U);
  EXPECT_EQ(job->cluster().min_workers(), 5U);
  EXPECT_FALSE(job->optimizer().has_adam());
  EXPECT_EQ(job->optimizer().sgd().rate(), 0.5);
  EXPECT_EQ(job->name(), "my-job.1");
  EXPECT_FALSE(job->has_epochs());
  EXPECT_EQ(job->steps(), 9U);
  EXPECT_FALSE(job->data().shuffle());
  EXPECT_EQ(job->consistency().sync().reduction(), SUM);
  EXPECT_EQ(job->data().idx().directory(), "/x y");
  EXPECT_EQ(job->learning_rate().warmup_steps(), 3U);
}

TEST_F(JobFile, AWrongOverrideIsNamed) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> table = {
      {"cluster.sharps=3", {"--set cluster.sharps=3: cluster.sharps: ", "workers, shards"}},
      {"cluster.shards", {"--set cluster.shards: ", "FIELD=VALUE"}},
      {"=3", {"--set =3: "}},
      {"", {"--set : "}},
      {"cluster.shards=", {"--set cluster.shards=: cluster.shards: "}},
      {"cluster.shards=many", {"--set cluster.shards=many: cluster.shards: ", "whole number"}},
      {"cluster.shards=-1", {"--set cluster.shards=-1: cluster.shards: "}},
      {"cluster.shards=2 workers: 3", {"--set cluster.shards=2 workers: 3"}},
      {"cluster.shards=0", {"--set cluster.shards=0: cluster.shards: ", "at least 1"}},
      {"cluster={shards: 0}", {"--set cluster={shards: 0}: cluster.shards"}},
      {"cluster=3", {"--set cluster=3: cluster: takes { ... }", "shards"}},
      {"cluster={shards: x}", {"--set cluster={shards: x}: cluster.shards: ", "whole number"}},
      {"consistency.sync={reduction: MAX}", {": consistency.sync.reduction: ", "MEAN, SUM"}},
      {"cluster.shards.more=3", {"--set cluster.shards.more=3: cluster.shards: has no fields"}},
      {"cluster..shards=3", {"--set cluster..shards=3: "}},
      {"device=GPU", {"--set device=GPU: device", "CPU, CUDA, AUTO"}},
      {"liveness=soon", {"--set liveness=soon: liveness", "\"10s\""}},
      {"optimizer.overrides={pattern: \"*\"}", {"optimizer.overrides: is a list"}},
  };
  for (const auto& [override, words] : table) {
    const auto job = Load(kGood, {override});
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << override;
    for (const std::string& word : words) {
      EXPECT_TRUE(absl::StrContains(job.status().message(), word))
          << "'" << word << "' is not in: " << job.status().message();
    }
  }
}

}  // namespace
}  // namespace parley
