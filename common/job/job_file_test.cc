#include "common/job/job_file.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/job_file_fixture.h"

namespace parley {
namespace {

TEST_F(JobFile, TensorboardsFolderIsTheJobDirectorysNotTheJobFiles) {
  for (const char* folder : {"board", "runs/board", "/data/board", "logs", "."}) {
    const auto job = Load(absl::StrCat(kGood, "tensorboard: \"", folder, "\"\n"));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->tensorboard(), folder);
  }
  EXPECT_EQ(Load(kGood)->tensorboard(), "");
}

TEST_F(JobFile, Float16SkipsWhatIsNotFinite) {
  const auto job = Load(absl::StrCat(kGood, "precision: FLOAT16_AUTOCAST"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->optimizer().skip_nonfinite());
  EXPECT_EQ(job->loss_scale().initial(), 65536);
  EXPECT_EQ(job->loss_scale().growth_interval(), 2000U);
  EXPECT_FALSE(Load(absl::StrCat(kGood, "precision: BFLOAT16_AUTOCAST"))->has_loss_scale());
  EXPECT_TRUE(Load(absl::StrCat(kGood, "precision: FLOAT16_AUTOCAST ",
                                "consistency { sync { deterministic: true } } ",
                                "loss_scale { initial: 1024 growth_interval: 0 }"))
                  .ok());
}

TEST_F(JobFile, AMissingFileIsNotFound) {
  const auto job = LoadJob(folder_ / "none.textproto", {});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(job.status().message(), "none.textproto"));
  EXPECT_EQ(LoadJob(folder_, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobFile, DefaultsAreFilledIn) {
  const auto job = Load(kGood);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->loss(), CROSS_ENTROPY);
  EXPECT_EQ(job->device(), CPU);
  EXPECT_EQ(job->precision(), FLOAT32);
  EXPECT_EQ(job->consistency().sync().reduction(), MEAN);
  EXPECT_EQ(job->consistency().sync().buffers(), LOWEST_ORDINAL);
  EXPECT_TRUE(job->learning_rate().has_constant());
  EXPECT_EQ(job->optimizer().adam().beta2(), 0.999);
  EXPECT_EQ(job->data().evaluation_batch(), 500U);
  EXPECT_TRUE(job->data().shuffle());
  EXPECT_EQ(job->data().prefetch(), 2U);
  EXPECT_EQ(job->data().idx().deviation(), 1);
  EXPECT_EQ(job->model().simple_cnn().classes(), 10U);
  EXPECT_EQ(job->cluster().min_workers(), 2U);
  EXPECT_EQ(job->consistency().sync().lost_worker(), GO_ON);
  EXPECT_EQ(job->consistency().sync().backup(), 0U);
  EXPECT_EQ(job->accumulate(), 1U);
  EXPECT_EQ(job->bucket_kib(), 4096U);
  EXPECT_TRUE(job->checkpoint().at_end());
  EXPECT_EQ(job->checkpoint().directory(), "checkpoints");
  EXPECT_EQ(Liveness(*job), absl::Seconds(10));
  EXPECT_EQ(StallTimeout(*job), absl::Minutes(10));
  EXPECT_EQ(PreemptionGrace(*job), absl::Seconds(25));
  const auto at_once = Load(std::string(kGood) + "preemption_grace: \"0s\"\n");
  ASSERT_TRUE(at_once.ok()) << at_once.status();
  EXPECT_EQ(PreemptionGrace(*at_once), absl::ZeroDuration());
  const auto adamw = Load(kGood, {"optimizer.adamw={rate: 1}"});
  ASSERT_TRUE(adamw.ok()) << adamw.status();
  EXPECT_EQ(adamw->optimizer().adamw().weight_decay(), 0.01);
}

TEST_F(JobFile, BoundedAndAsyncHaveDefaultsAndOnlyTheirOwnOptions) {
  const auto bounded = Load(kGood, {"consistency.bounded={bound: 3}"});
  ASSERT_TRUE(bounded.ok()) << bounded.status();
  EXPECT_EQ(bounded->consistency().bounded().bound(), 3U);
  EXPECT_EQ(bounded->consistency().bounded().reduction(), MEAN);
  const auto async = Load(kGood, {"consistency.async={reduction: SUM max_staleness: 5}"});
  ASSERT_TRUE(async.ok()) << async.status();
  EXPECT_EQ(async->consistency().async().reduction(), SUM);
  EXPECT_EQ(async->consistency().async().max_staleness(), 5U);
  EXPECT_FALSE(Load(kGood, {"consistency.bounded={deterministic: true}"}).ok());
  EXPECT_FALSE(Load(kGood, {"consistency.async={bound: 1}"}).ok());
}

TEST_F(JobFile, ADeterministicJobWaitsForALostWorkerUnlessItEndsThen) {
  const auto waits = Load(kGood, {"consistency.sync.deterministic=true", "cluster.min_workers=1"});
  ASSERT_TRUE(waits.ok()) << waits.status();
  EXPECT_EQ(waits->consistency().sync().lost_worker(), WAIT);
  EXPECT_EQ(waits->cluster().min_workers(), 1U);
  const auto ends =
      Load(kGood, {"consistency.sync.deterministic=true", "consistency.sync.lost_worker=GO_ON"});
  ASSERT_TRUE(ends.ok()) << ends.status();
  const auto chosen = Load(kGood, {"consistency.sync.lost_worker=WAIT", "cluster.min_workers=1"});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->consistency().sync().lost_worker(), WAIT);
}

TEST_F(JobFile, AResolvedJobLoadsAsTheSameJobFromAnywhere) {
  const std::string extra =
      "optimizer { rmsprop { rate: 0.1 } overrides { pattern: \"*.bias\" weight_decay: 0.3 } }\n"
      "learning_rate { cosine {} warmup_steps: 7 }\ncheckpoint { start_from: \"../old\" }\n";
  const std::string richer =
      absl::StrReplaceAll(kGood, {{"optimizer { adam { rate: 0.001 } }", extra}});
  for (const std::string& text : {std::string(kGood), richer}) {
    const auto job = Load(text);
    ASSERT_TRUE(job.ok()) << job.status();
    std::string printed;
    ASSERT_TRUE(google::protobuf::TextFormat::PrintToString(*job, &printed));
    std::filesystem::create_directories(folder_ / "run");
    const auto again = LoadJob(Write(printed, "run/job.textproto"), {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->SerializeAsString(), job->SerializeAsString());
    EXPECT_EQ(JobFingerprint(*again), JobFingerprint(*job));
  }
}

TEST_F(JobFile, TheFingerprintTellsJobsApartButNotPlaces) {
  const auto job = Load(kGood);
  std::filesystem::create_directories(folder_ / "elsewhere");
  const auto copy = LoadJob(Write(kGood, "elsewhere/other_name.textproto"), {});
  ASSERT_TRUE(job.ok() && copy.ok());
  EXPECT_NE(job->data().idx().directory(), copy->data().idx().directory());
  EXPECT_EQ(JobFingerprint(*job), JobFingerprint(*copy));
  EXPECT_EQ(JobFingerprint(*job).size(), 16U);
  EXPECT_EQ(JobFingerprint(*job).find_first_not_of("0123456789abcdef"), std::string::npos);
  for (const char* change : {"epochs=77", "name=other", "seed=4", "data.idx.directory=others",
                             "optimizer.adam.beta1=0.8", "threads=2", "cluster.shards=1"}) {
    const auto changed = Load(kGood, {change});
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_NE(JobFingerprint(*changed), JobFingerprint(*job)) << change;
  }
  const auto started_otherwise = Load(kGood, {"gather_timeout=720h"});
  ASSERT_TRUE(started_otherwise.ok()) << started_otherwise.status();
  EXPECT_EQ(JobFingerprint(*started_otherwise), JobFingerprint(*job));
}

TEST_F(JobFile, PathsAreRelativeToTheFile) {
  const auto job = Load(kGood, {"model.torchscript=nets/../mine.pt", "checkpoint.start_from=/a/b"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data().idx().directory(), (folder_ / "data").string());
  EXPECT_EQ(job->model().torchscript(), (folder_ / "mine.pt").string());
  EXPECT_EQ(job->checkpoint().start_from(), "/a/b");
  EXPECT_EQ(job->checkpoint().directory(), "checkpoints");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const auto from_here = LoadJob("job.textproto", {});
  std::filesystem::current_path(before);
  ASSERT_TRUE(from_here.ok()) << from_here.status();
  EXPECT_EQ(from_here->data().idx().directory(), (folder_ / "data").string());
}

TEST_F(JobFile, TheShippedJobIsRight) {
  const auto job = LoadJob("deploy/jobs/fashion_mnist.textproto", {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->cluster().workers(), 2U);
}

// Whatever bytes a file has, loading it gives a job or an error that names the file.
TEST_F(JobFile, DamagedFilesNeverCrash) {
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    std::string text = kGood;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.resize(at + 1);
          break;
        case 1:
          text[at] = static_cast<char>(random());
          break;
        case 2:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
      if (text.empty()) text = " ";
    }
    const auto job = Load(text);
    if (!job.ok()) {
      EXPECT_TRUE(absl::StrContains(job.status().message(), "job.textproto")) << job.status();
    }
  }
}

}  // namespace
}  // namespace parley
