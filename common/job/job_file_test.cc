#include "common/job/job_file.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace parley {
namespace {

constexpr char kGood[] = R"(
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

class JobFile : public testing::Test {
 protected:
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

// What is wrong, what of the good file is replaced (empty: nothing, the new text is added at its
// end), by what, and what the message must have.
struct WrongJob {
  const char* what;
  std::string old_text;
  std::string new_text;
  std::vector<std::string> words;
};

const std::vector<WrongJob>& WrongJobs() {
  const std::string adam = "adam { rate: 0.001 }";
  static const auto& table = *new std::vector<WrongJob>{
      {"unknown field", "", "colour: \"red\"", {"job.textproto:11: colour: ", "optimizer"}},
      {"unknown inner field",
       "shards: 2",
       "sharps: 2",
       {"textproto:7: cluster.sharps: ", "workers, shards"}},
      {"wrong type", "seed: 3", "seed: \"three\"", {"textproto:3: seed: ", "whole number"}},
      {"text without quotes", "\"small\"", "small", {"textproto:2: name: ", "in quotes"}},
      {"wrong truth",
       "",
       "checkpoint { at_end: 7 }",
       {"textproto:11: checkpoint.at_end: ", "true or false"}},
      {"what is left out of nothing",
       "",
       "checkpoint { ignore_unexpected: true }",
       {"textproto:11: checkpoint.ignore_unexpected: ", "start_from"}},
      {"no block", "{ simple_cnn {} }", ": 3", {"textproto:4: model: ", "simple_cnn"}},
      {"no colon", "seed: 3", "seed 3", {"textproto:3: seed"}},
      {"a number too large", "batch: 20", "batch: 5000000000", {"textproto:5: data.batch: "}},
      {"twice", "", "seed: 4", {"textproto:11: seed: ", "more than once"}},
      {"two optimizers",
       adam,
       adam + " sgd { rate: 1 }",
       {"textproto:6: optimizer.sgd: ", "together with optimizer.adam"}},
      {"no brace",
       "shards: 2 }",
       "shards: 2",
       {"textproto:8: cluster.threads: ", "workers, shards"}},
      {"unknown value", "", "device: GPU", {"textproto:11: device: ", "GPU", "CPU, CUDA, AUTO"}},
      {"unknown value before another field",
       "seed: 3",
       "device: GPU\nseed: 3",
       {"textproto:3: device: ", "CPU, CUDA, AUTO"}},
      {"unknown value before the same field",
       "seed: 3",
       "loss: BAD\nloss: CROSS_ENTROPY",
       {"textproto:3: loss: there is no value BAD", "CROSS_ENTROPY"}},
      {"unknown value at the end of a block",
       "",
       "consistency { sync {\nreduction: MAX\n}\n}",
       {"textproto:12: consistency.sync.reduction: there is no value MAX", "MEAN, SUM"}},
      {"unknown value before a comment",
       "seed: 3",
       "precision: HALF  # device: CPU {\n\n\nseed: 3",
       {"textproto:3: precision: ", "FLOAT32"}},
      {"no value", "seed: 3", "device:\nseed: 3", {"textproto:3: device: ", "CPU, CUDA, AUTO"}},
      {"a number that is missing", "seed: 3", "seed:", {"textproto:3: seed: ", "whole number"}},
      {"a wrong type in a list's element",
       adam,
       adam + "\noverrides { pattern: \"*\" }\noverrides { pattern: 7 }",
       {"textproto:8: optimizer.overrides[1].pattern: ", "in quotes"}},
      {"after a number with an exponent",
       "rate: 0.001",
       "rate: 1e-3 beta1: \"x\"",
       {"textproto:6: optimizer.adam.beta1: ", "a number"}},
      {"a text that does not end", "\"small\"", "\"small", {"textproto:2: name: "}},
      {"a brace in a text",
       "\"small\"",
       "\"a{b}c{\" cluster { shards: x }",
       {"2: cluster.shards: "}},
      {"a brace too many", "shards: 2 }", "shards: 2 } }", {"textproto:7: a field is expected"}},
      {"a number for a name", "shards: 2", "2", {"7: cluster: a field or }", "workers, shards"}},
      {"class numbers as targets",
       "",
       "loss: MEAN_SQUARED_ERROR",
       {"textproto:11: loss: ", "data.idx are class numbers", "CROSS_ENTROPY"}},
      {"class numbers as targets",
       "idx { directory: \"data\" } batch: 20 }",
       "cifar10 { directory: \"data\" } batch: 20 }\nloss: MEAN_SQUARED_ERROR",
       {"textproto:6: loss: ", "data.cifar10 are class numbers"}},
      {"stall_timeout below liveness",
       "",
       "stall_timeout: \"9999ms\"",
       {"textproto:11: stall_timeout: must be at least liveness, 10s, not 9999ms"}},
      {"number of no value", "", "loss: 17", {"textproto:11: loss", "CROSS_ENTROPY"}},
      {"missing name", "name: \"small\"", "", {"textproto: name: is missing"}},
      {"empty name", "\"small\"", "\"\"", {"textproto:2: name: "}},
      {"a name with a space", "\"small\"", "\"a b\"", {"textproto:2: name: ", "letters"}},
      {"a long name", "small", std::string(65, 'n'), {"textproto:2: name: ", "64"}},
      {"a name of other bytes", "small", "\\377", {"textproto:2: name: "}},
      {"missing model", "model { simple_cnn {} }", "", {"textproto: model: is missing"}},
      {"empty model", "simple_cnn {}", "", {"textproto:4: model: is missing", "torchscript"}},
      {"missing data",
       "idx { directory: \"data\" }",
       "",
       {"textproto:5: data: is missing", "cifar10"}},
      {"negative batch", "batch: 20", "batch: -20", {"textproto:5: data.batch: ", "from 0 on"}},
      {"zero batch", "batch: 20", "batch: 0", {"textproto:5: data.batch: ", "at least 1"}},
      {"missing batch", "batch: 20", "", {"textproto:5: data.batch: ", "at least 1"}},
      {"zero test batch",
       "batch: 20",
       "batch: 20 evaluation_batch: 0",
       {"5: data.evaluation_batch"}},
      {"much prefetch", "batch: 20", "batch: 20 prefetch: 9999", {"5: data.prefetch"}},
      {"missing optimizer", adam, "", {"textproto:6: optimizer: is missing", "adamw"}},
      {"missing rate", adam, "adam {}", {"textproto:6: optimizer.adam.rate", "above 0"}},
      {"zero rate", "rate: 0.001", "rate: 0", {"textproto:6: optimizer.adam.rate", "above 0"}},
      {"negative rate", "rate: 0.001", "rate: -1", {"textproto:6: optimizer.adam.rate", "above 0"}},
      {"a rate that is none", "rate: 0.001", "rate: nan", {"textproto:6: optimizer.adam.rate"}},
      {"infinite rate", "rate: 0.001", "rate: inf", {"textproto:6: optimizer.adam.rate"}},
      {"beta", "rate: 0.001", "rate: 1 beta1: 1", {"textproto:6: optimizer.adam.beta1", "below 1"}},
      {"beta", adam, "adamw { rate: 1 beta2: -0.1 }", {"textproto:6: optimizer.adamw.beta2"}},
      {"epsilon", adam, "adagrad { rate: 1 epsilon: -1 }", {"6: optimizer.adagrad.epsilon"}},
      {"momentum", adam, "rmsprop { rate: 1 momentum: -1 }", {"6: optimizer.rmsprop.momentum"}},
      {"nesterov",
       adam,
       "sgd { rate: 1 nesterov: true }",
       {"6: optimizer.sgd.nesterov", "momentum"}},
      {"clip_norm", adam, adam + " clip_norm: -1", {"textproto:6: optimizer.clip_norm"}},
      {"no pattern",
       adam,
       adam + "\noverrides { pattern: \"*\" }\noverrides { rate_factor: 2 }",
       {"textproto:8: optimizer.overrides[1].pattern"}},
      {"rate_factor",
       adam,
       adam + "\noverrides {\n pattern: \"*\"\n rate_factor: -2 }",
       {"textproto:9: optimizer.overrides[0].rate_factor"}},
      {"no steps of decay",
       "",
       "learning_rate { step_decay { gamma: 0.5 } }",
       {"11: learning_rate.step_decay.every_steps"}},
      {"decay by steps and by epochs",
       "",
       "learning_rate { step_decay { every_steps: 5 every_epochs: 1 gamma: 0.5 } }",
       {"11: learning_rate.step_decay.every_epochs"}},
      {"no milestones",
       "",
       "learning_rate { milestones { gamma: 0.5 } }",
       {"11: learning_rate.milestones: needs either steps or epochs"}},
      {"milestones that fall",
       "",
       "learning_rate { milestones { epochs: 6 epochs: 3 gamma: 0.5 } }",
       {"11: learning_rate.milestones.epochs: must rise"}},
      {"warm-up by steps and by epochs",
       "",
       "learning_rate { warmup_steps: 3 warmup_epochs: 1 }",
       {"11: learning_rate.warmup_epochs"}},
      {"parameters frozen for a negative time",
       adam,
       adam + "\noverrides {\n pattern: \"*\"\n frozen_epochs: -1 }",
       {"textproto:9: optimizer.overrides[0].frozen_epochs"}},
      {"no gamma",
       "",
       "learning_rate { step_decay { every_steps: 5 } }",
       {"11: learning_rate.step_decay.gamma"}},
      {"minimum",
       "",
       "learning_rate { cosine { minimum: 2 } }",
       {"11: learning_rate.cosine.minimum"}},
      {"linear scaling of single contributions",
       "",
       "consistency { bounded { bound: 3 } }\nlearning_rate { linear_scaling: true }",
       {"textproto:12: learning_rate.linear_scaling: ", "consistency.bounded", "by itself"}},
      {"a rate that follows the workers, of single contributions",
       "",
       "consistency { async {} }\nlearning_rate { elastic: true }",
       {"textproto:12: learning_rate.elastic: ", "consistency.async", "by itself"}},
      {"a rate that follows the workers, of sums",
       "",
       "consistency { sync { reduction: SUM } }\nlearning_rate { elastic: true }",
       {"textproto:12: learning_rate.elastic: ", "SUM"}},
      {"a rate that follows the workers, of all of them",
       "",
       "consistency { sync { deterministic: true } }\nlearning_rate { elastic: true }",
       {"textproto:12: learning_rate.elastic: ", "deterministic"}},
      {"averaged buffers of node groups",
       "shards: 2",
       "shards: 2 group: 2 }\nconsistency { sync { buffers: AVERAGE }",
       {"textproto:8: consistency.sync.buffers: ", "node group"}},
      {"negative delay compensation",
       "",
       "consistency { async { delay_compensation: -1 } }",
       {"textproto:11: consistency.async.delay_compensation: ", "at least 0"}},
      {"deterministic without threads",
       "threads: 1",
       "consistency { sync { deterministic: true } }",
       {"textproto:8: consistency.sync.deterministic: ", "threads"}},
      {"zero shards", "shards: 2", "shards: 0", {"textproto:7: cluster.shards: ", "at least 1"}},
      {"zero workers",
       "workers: 2",
       "workers: 0",
       {"textproto:7: cluster.workers: ", "at least 1"}},
      {"billions", "workers: 2", "workers: 4000000000", {"textproto:7: cluster.workers: "}},
      {"min_workers",
       "shards: 2",
       "shards: 2 min_workers: 3",
       {"textproto:7: cluster.min_workers: ", "at most 2", "not 3"}},
      {"no minimum",
       "shards: 2",
       "shards: 2 min_workers: 0",
       {"textproto:7: cluster.min_workers: ", "at least 1", "not 0"}},
      {"deterministic with fewer workers",
       "shards: 2 }",
       "shards: 2 min_workers: 1 }\n"
       "consistency { sync { deterministic: true lost_worker: GO_ON } }",
       {"textproto:8: consistency.sync.lost_worker: GO_ON", "deterministic", "WAIT",
        "min_workers must be 2"}},
      {"no worker but backups",
       "",
       "consistency { sync { backup: 2 } }",
       {"textproto:11: consistency.sync.backup: must be below cluster.workers, 2, not 2"}},
      {"a negative backup",
       "",
       "consistency { sync { backup: -1 } }",
       {"textproto:11: consistency.sync.backup: ", "from 0 on"}},
      {"backup and deterministic",
       "",
       "consistency { sync {\nbackup: 1 deterministic: true } }",
       {"textproto:12: consistency.sync.backup: ", "deterministic"}},
      {"updates ahead and backup",
       "",
       "consistency { sync { backup: 1\nupdate_ahead: true } }",
       {"textproto:12: consistency.sync.update_ahead: ", "backup"}},
      {"updates ahead and a bound of the norm",
       adam,
       adam + " clip_norm: 1 } consistency { sync { update_ahead: true }",
       {"textproto:6: consistency.sync.update_ahead: ", "clip_norm"}},
      {"updates ahead and steps that may be skipped",
       adam,
       adam + " skip_nonfinite: true } consistency { sync { update_ahead: true }",
       {"textproto:6: consistency.sync.update_ahead: ", "skip_nonfinite"}},
      {"rounded gradients and deterministic",
       "threads: 1",
       "threads: 1\ngradients_on_wire: WIRE_BFLOAT16\nconsistency { sync { deterministic: true } }",
       {"gradients_on_wire: ", "deterministic", "AS_COMPUTED"}},
      {"backup and WAIT",
       "",
       "consistency { sync { lost_worker: WAIT\nbackup: 1 } }",
       {"textproto:12: consistency.sync.backup: ", "lost_worker is WAIT"}},
      {"buckets of nothing", "", "bucket_kib: 0", {"textproto:11: bucket_kib: ", "1", "32768"}},
      {"max_restarts", "", "max_restarts: 2000000", {"textproto:11: max_restarts: ", "1000000"}},
      {"autonomy", "", "autonomy: \"9s\"", {"textproto:11: autonomy: ", "at least liveness, 10s"}},
      {"negative autonomy", "", "autonomy: \"-1s\"", {"textproto:11: autonomy: ", "at least 0"}},
      {"autonomy for ever", "", "autonomy: \"inf\"", {"textproto:11: autonomy: ", "at most 168h"}},
      {"negative grace",
       "",
       "preemption_grace: \"-1s\"",
       {"textproto:11: preemption_grace: ", "at least 0"}},
      {"grace without a unit", "", "preemption_grace: \"25\"", {"preemption_grace: '25'"}},
      {"grace for ever",
       "",
       "preemption_grace: \"25h\"",
       {"textproto:11: preemption_grace: ", "at most 24h"}},
      {"epochs and steps", "", "steps: 5", {"textproto:11: steps: epochs and steps"}},
      {"neither", "epochs: 1", "", {"epochs: is missing", "steps"}},
      {"zero epochs", "epochs: 1", "epochs: 0", {"textproto:10: epochs: ", "at least 1"}},
      {"zero steps", "epochs: 1", "steps: 0", {"textproto:10: steps: ", "at least 1"}},
      {"threads", "threads: 1", "threads: 100000", {"textproto:8: threads: "}},
      {"accumulate", "", "accumulate: 0", {"textproto:11: accumulate: ", "at least 1"}},
      {"deterministic on a GPU",
       "",
       "device: AUTO consistency { sync { deterministic: true } }",
       {"textproto:11: device: ", "CPU", "deterministic"}},
      {"a model of one's own on a GPU",
       "model { simple_cnn {} }",
       "model { own {} } device: CUDA",
       {"textproto:4: device: ", "CPU", "model is own", "twin of its parameters on the CPU"}},
      {"a model of one's own on a GPU, where there is one",
       "model { simple_cnn {} }",
       "model { own {} } device: AUTO",
       {"textproto:4: device: ", "model is own"}},
      {"half in stages",
       "shards: 2",
       "shards: 2 stages: 2 } precision: BFLOAT16_AUTOCAST pipeline {",
       {"textproto:7: precision: ", "FLOAT32", "cluster.stages"}},
      {"graphs on the CPU",
       "",
       "cuda_graphs: true",
       {"textproto:11: cuda_graphs: ", "device is CPU"}},
      {"graphs in stages",
       "shards: 2",
       "shards: 2 stages: 2 } device: CUDA cuda_graphs: true pipeline {",
       {"textproto:7: cuda_graphs: ", "cluster.stages"}},
      {"a node group on GPUs that may not be there",
       "shards: 2 }",
       "shards: 2\ngroup: 2 group_reduction: ON_GPUS } device: AUTO",
       {"textproto:8: cluster.group_reduction: ", "CUDA"}},
      {"nothing to add up on GPUs",
       "shards: 2 }",
       "shards: 2\ngroup_reduction: ON_GPUS } device: CUDA",
       {"textproto:8: cluster.group_reduction: ", "cluster.group is 1"}},
      {"a precision that there is not",
       "",
       "precision: 17",
       {"textproto:11: precision: ", "BFLOAT16_AUTOCAST"}},
      {"a group reduction that there is not",
       "shards: 2 }",
       "shards: 2\ngroup_reduction: 17 }",
       {"textproto:8: cluster.group_reduction: ", "ON_GPUS"}},
      {"a loss scale without float16",
       "",
       "precision: BFLOAT16_AUTOCAST\nloss_scale { initial: 2 }",
       {"textproto:12: loss_scale: ", "FLOAT16_AUTOCAST"}},
      {"a loss scale that rounds",
       "",
       "precision: FLOAT16_AUTOCAST\nloss_scale { initial: 1000 }",
       {"textproto:12: loss_scale.initial: ", "power of two"}},
      {"float16 that skips nothing",
       "optimizer { adam { rate: 0.001 } }",
       "precision: FLOAT16_AUTOCAST optimizer { adam { rate: 0.001 }\nskip_nonfinite: false }",
       {"textproto:7: optimizer.skip_nonfinite: ", "FLOAT16_AUTOCAST"}},
      {"a loss scale that no checkpoint has",
       "",
       "precision: FLOAT16_AUTOCAST\nconsistency { sync { deterministic: true } }",
       {"loss_scale.growth_interval: ", "deterministic"}},
      {"points into a bucket",
       "",
       "tensorboard: \"s3://bucket/board\"",
       {"textproto:11: tensorboard: ", "folder", "s3://bucket/board"}},
      {"points among the records",
       "",
       "tensorboard: \"./log/board\"",
       {"textproto:11: tensorboard: ", "`log`"}},
      {"points without a name",
       "",
       "tensorboard: \"board\\n\"",
       {"textproto:11: tensorboard: ", "control characters"}},
      {"no duration", "\"10s\"", "\"soon\"", {"textproto:9: liveness: 'soon'", "\"10s\""}},
      {"no unit", "\"10s\"", "\"10\"", {"textproto:9: liveness: ", "\"10s\""}},
      {"short", "\"10s\"", "\"999ms\"", {"textproto:9: liveness: ", "at least 1s"}},
      {"negative", "\"10s\"", "\"-10s\"", {"textproto:9: liveness: ", "at least 1s"}},
      {"for ever", "\"10s\"", "\"inf\"", {"textproto:9: liveness: ", "at most 24h"}},
      {"stall", "", "stall_timeout: \"\"", {"textproto:11: stall_timeout: "}},
      {"gather", "", "gather_timeout: \"\"", {"textproto:11: gather_timeout: "}},
  };
  return table;
}

TEST_F(JobFile, EverythingWrongNamesFileLineAndField) {
  for (const WrongJob& wrong : WrongJobs()) {
    std::string text = kGood;
    if (wrong.old_text.empty()) {
      text += wrong.new_text + "\n";
    } else {
      ASSERT_TRUE(absl::StrContains(text, wrong.old_text)) << wrong.old_text;
      text = absl::StrReplaceAll(text, {{wrong.old_text, wrong.new_text}});
    }
    const auto job = Load(text);
    ASSERT_FALSE(job.ok()) << wrong.what;
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << wrong.what;
    for (const std::string& word : wrong.words) {
      EXPECT_TRUE(absl::StrContains(job.status().message(), word))
          << wrong.what << ": '" << word << "' is not in: " << job.status().message();
    }
  }
}

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
