#include "worker/trainer.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "client/torch/testing/fake_session.h"
#include "worker/data/in_memory_source.h"
#include "worker/late_steps.h"
#include "worker/local_compute.h"
#include "worker/threads.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

// A linear layer, with dropout before it where asked.
class LinearNetwork final : public Network {
 public:
  LinearNetwork(int64_t inputs, int64_t outputs, double dropout) : dropout_(dropout) {
    weight_ = at::full({outputs, inputs}, 0.1);
    bias_ = at::zeros({outputs});
    weight_.set_requires_grad(true);
    bias_.set_requires_grad(true);
  }
  at::Tensor Forward(const at::Tensor& x) override {
    ++forwards;
    return at::linear(at::dropout(x, dropout_, training), weight_, bias_);
  }
  void SetTraining(bool on) override { training = on; }
  std::vector<NamedTensor> Tensors() const override {
    return {{"weight", weight_}, {"bias", bias_}};
  }
  int forwards = 0;
  bool training = true;

 private:
  const double dropout_;
  at::Tensor weight_, bias_;
};

template <class T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Two clouds of points and their class.
std::shared_ptr<const DataSource> Clouds(uint64_t samples) {
  std::mt19937 random(3);
  std::normal_distribution<float> noise(0, 0.5);
  std::vector<float> x;
  std::vector<int64_t> y;
  for (uint64_t i = 0; i < samples; ++i) {
    const auto side = static_cast<float>(i % 2);
    x.insert(x.end(), {2 * side - 1 + noise(random), noise(random)});
    y.push_back(static_cast<int64_t>(i % 2));
  }
  return std::make_shared<RowSource>(samples, SampleLayout{F32, {2}}, SampleLayout{I64, {}},
                                     Bytes(x), Bytes(y));
}

std::shared_ptr<const DataSource> Line(uint64_t samples) {
  std::vector<float> x(samples);
  std::iota(x.begin(), x.end(), 0.0F);
  std::vector<float> y(samples);
  for (size_t i = 0; i < samples; ++i) y[i] = 2 * (x[i] /= static_cast<float>(samples)) + 1;
  return std::make_shared<RowSource>(samples, SampleLayout{F32, {1}}, SampleLayout{F32, {1}},
                                     Bytes(x), Bytes(y));
}

// `epochs` passes over `samples`, `nominal` a step, in order.
std::vector<StepPlan> Plans(uint64_t epochs, uint64_t samples, uint64_t nominal) {
  std::vector<StepPlan> plans;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (uint64_t begin = 0; begin < samples; begin += nominal) {
      StepPlan& plan = plans.emplace_back();
      plan.step = plans.size();
      plan.data_epoch = epoch;
      const uint64_t end = std::min(samples, begin + nominal);
      plan.ends_epoch = end == samples;
      for (uint64_t i = begin; i < end; ++i) plan.samples.push_back(i);
      plan.weight = static_cast<double>(end - begin) / static_cast<double>(nominal);
    }
  }
  return plans;
}

JobConfig Job(uint32_t batch) {
  JobConfig job;
  job.set_name("test");
  job.set_seed(11);
  job.set_loss(CROSS_ENTROPY);
  job.set_threads(1);
  job.set_accumulate(1);
  job.mutable_data()->set_batch(batch);
  job.mutable_data()->set_evaluation_batch(16);
  return job;
}

struct Outcome {
  absl::Status status;
  std::vector<at::Tensor> values;
  std::string metrics;
  std::vector<std::string> log;
};

Outcome Train(const JobConfig& job, Network& network, const Datasets& data, FakeSession& session,
              std::function<std::string()> preemption = {}) {
  Metrics metrics;
  TrainingMetrics training_metrics(metrics);
  std::vector<std::string> lines;
  Log log(LogFormat::kText, "test", [&](const std::string& line) { lines.push_back(line); });
  LocalCompute compute({job, network, data, session, training_metrics});
  Trainer trainer({job, compute, session, training_metrics, log, std::move(preemption)});
  Outcome outcome{trainer.Run(), {}, "", {}};
  outcome.log = std::move(lines);
  outcome.metrics = metrics.Text();
  for (const NamedTensor& named : network.Tensors())
    outcome.values.push_back(named.tensor.detach());
  return outcome;
}

TEST(TrainerTest, LearnsAndEvaluatesAtTheEndOfEachDataEpoch) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(3, 100, 10), 0.5);
  session.part.set_begin(10);
  session.part.set_end(50);
  const Outcome outcome = Train(Job(10), network, {Clouds(100), Clouds(60)}, session);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(session.finished());
  ASSERT_EQ(session.evaluations().size(), 3);
  const Evaluation& last = session.evaluations().back();
  EXPECT_EQ(last.version(), 30);
  EXPECT_EQ(last.epoch(), 3);
  EXPECT_EQ(last.samples(), 40);
  EXPECT_TRUE(last.classes());
  EXPECT_GE(last.correct(), 36);
  EXPECT_EQ(last.correct_top5(), 40);  // there are but two classes
  EXPECT_LT(session.losses().back(), session.losses().front());
  ASSERT_EQ(session.seconds().size(), kStepPhases);
  EXPECT_TRUE(network.training);
}

TEST(TrainerTest, OneThatIsLateEvaluatesAsTheOthersDo) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(2, 100, 10), 0.5);
  session.part.set_end(60);
  session.late = {4, 10, 20};  // the last steps of the data epochs too
  ASSERT_TRUE(Train(Job(10), network, {Clouds(100), Clouds(60)}, session).status.ok());
  EXPECT_TRUE(session.finished());
  ASSERT_EQ(session.evaluations().size(), 2);
  EXPECT_EQ(session.evaluations()[0].version(), 10);
  EXPECT_EQ(session.evaluations()[1].version(), 20);
}

// Lines of the log that have this.
std::vector<std::string> LinesWith(const Outcome& outcome, const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& line : outcome.log) {
    if (line.find(text) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

TEST(TrainerTest, OneThatIsLateAgainAndAgainCountsThatAndDoesNotFillItsLog) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(2, 100, 10), 0.5);
  session.late = {3, 4, 5, 11};
  const Outcome outcome = Train(Job(10), network, {Clouds(100), nullptr}, session);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_THAT(outcome.metrics, HasSubstr("parley_late_steps_total 4\n"));
  const std::vector<std::string> lines = LinesWith(outcome, "went on without this step");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("which was late step=3 version=3 times=1"));
}

TEST(TrainerTest, EachStepThatWasLostWithTheLeaseIsInItsLog) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(2, 100, 10), 0.5);
  session.late = {3, 4, 5, 11};
  session.on_complete = [&](uint64_t step) { session.joined += step == 4 || step == 5 ? 1 : 0; };
  const Outcome outcome = Train(Job(10), network, {Clouds(100), nullptr}, session);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_THAT(outcome.metrics, HasSubstr("parley_late_steps_total 4\n"));
  EXPECT_EQ(LinesWith(outcome, "which was cut off and has joined anew").size(), 2u);
  EXPECT_EQ(LinesWith(outcome, "went on without this step").size(), 3u);
}

TEST(LateStepsTest, ALineSpeaksForThoseThatHadNone) {
  LateSteps late;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(late.OneMore(start), 1u);
  for (int second = 1; second < 10; ++second) {
    EXPECT_EQ(late.OneMore(start + absl::Seconds(second)), 0u);
  }
  EXPECT_EQ(late.OneMore(start + absl::Seconds(10)), 10u);
  EXPECT_EQ(late.OneMore(start + absl::Hours(1)), 1u);
}

TEST(TrainerTest, AnEvaluationThatIsMadeAnewCountsOnce) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(2, 100, 10), 0.5);
  session.part.set_end(60);
  session.untaken_reports = 1;
  const Outcome outcome = Train(Job(10), network, {Clouds(100), Clouds(60)}, session);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(session.untaken_reports, 0);
  ASSERT_EQ(session.evaluations().size(), 2);
  EXPECT_EQ(session.evaluations()[0].version(), 10);
  const std::string count = "parley_step_phase_duration_seconds_count{";
  std::vector<std::string> counts;
  for (size_t at = outcome.metrics.find(count); at != std::string::npos;
       at = outcome.metrics.find(count, at + 1)) {
    const std::string line = outcome.metrics.substr(at, outcome.metrics.find('\n', at) - at);
    if (line.find("phase=\"evaluate\"") != std::string::npos) counts.push_back(line);
  }
  ASSERT_EQ(counts.size(), 1);
  EXPECT_THAT(counts[0], ::testing::EndsWith("} 2"));
}

TEST(TrainerTest, WhereTheJobGoesBackWhileItFinishesItTrainsOn) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(2, 100, 10), 0.5);
  session.part.set_end(60);
  session.goes_back_to = 7;
  ASSERT_TRUE(Train(Job(10), network, {Clouds(100), Clouds(60)}, session).status.ok());
  EXPECT_TRUE(session.finished());
  EXPECT_EQ(session.losses().size(), 20);
  std::vector<uint64_t> evaluated;
  for (const Evaluation& part : session.evaluations()) evaluated.push_back(part.version());
  EXPECT_EQ(evaluated, (std::vector<uint64_t>{10, 20, 10, 20}));
}

TEST(TrainerTest, AJobOfStepsEvaluatesAtItsEnd) {
  LinearNetwork network(2, 2, 0);
  auto plans = Plans(2, 100, 10);
  plans.resize(13);
  FakeSession session(plans, 0.5);
  session.part.set_end(60);
  ASSERT_TRUE(Train(Job(10), network, {Clouds(100), Clouds(60)}, session).status.ok());
  ASSERT_EQ(session.evaluations().size(), 2);
  EXPECT_EQ(session.evaluations()[1].version(), 13);
  EXPECT_EQ(session.evaluations()[1].epoch(), 2);
}

TEST(TrainerTest, AccumulationGivesTheMeanOverAllSamplesOfTheStep) {
  // 26 samples a step: microbatches of 26, or of 8, 8, 8 and 2.
  LinearNetwork whole(2, 2, 0);
  FakeSession whole_session(Plans(2, 70, 26), 0.5);
  const Outcome a = Train(Job(26), whole, {Clouds(70), nullptr}, whole_session);
  LinearNetwork cut(2, 2, 0);
  FakeSession cut_session(Plans(2, 70, 26), 0.5);
  JobConfig job = Job(8);
  job.set_accumulate(4);
  const Outcome b = Train(job, cut, {Clouds(70), nullptr}, cut_session);
  ASSERT_TRUE(a.status.ok() && b.status.ok());
  EXPECT_GT(cut.forwards, whole.forwards);
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_TRUE(at::allclose(a.values[i], b.values[i], 0, 1e-6));
  }
  for (size_t i = 0; i < whole_session.losses().size(); ++i) {
    EXPECT_NEAR(whole_session.losses()[i], cut_session.losses()[i], 1e-4);
  }
}

TEST(TrainerTest, DropoutDrawsTheSameNumbersInEveryRunAndOthersWithAnotherSeed) {
  const auto run = [](uint64_t seed) {
    LinearNetwork network(2, 2, 0.5);
    FakeSession session(Plans(2, 60, 10), 0.5);
    JobConfig job = Job(10);
    job.set_seed(seed);
    return Train(job, network, {Clouds(60), nullptr}, session).values;
  };
  const auto a = run(1);
  const auto b = run(1);
  const auto c = run(2);
  EXPECT_TRUE(a[0].equal(b[0]));
  EXPECT_FALSE(a[0].equal(c[0]));
}

TEST(TrainerTest, PrefetchingDoesNotChangeTheResult) {
  std::vector<at::Tensor> first;
  for (const uint32_t prefetch : {0, 1, 5}) {
    LinearNetwork network(2, 2, 0.2);
    FakeSession session(Plans(2, 70, 16), 0.5);
    JobConfig job = Job(4);
    job.set_accumulate(4);
    job.mutable_data()->set_prefetch(prefetch);
    const Outcome outcome = Train(job, network, {Clouds(70), nullptr}, session);
    ASSERT_TRUE(outcome.status.ok());
    if (first.empty()) first = outcome.values;
    EXPECT_TRUE(first[0].equal(outcome.values[0]));
  }
}

TEST(TrainerTest, MeanSquaredErrorFitsALine) {
  LinearNetwork network(1, 1, 0);
  FakeSession session(Plans(200, 20, 10), 0.5);
  session.part.set_end(20);
  JobConfig job = Job(10);
  job.set_loss(MEAN_SQUARED_ERROR);
  const Outcome outcome = Train(job, network, {Line(20), Line(20)}, session);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_NEAR(outcome.values[0].item().toDouble(), 2, 0.05);
  EXPECT_NEAR(outcome.values[1].item().toDouble(), 1, 0.05);
  EXPECT_FALSE(session.evaluations().back().classes());
}

TEST(TrainerTest, AWorkerWithoutSamplesCompletesItsStep) {
  LinearNetwork network(2, 2, 0);
  auto plans = Plans(1, 10, 10);
  StepPlan empty;
  empty.step = 2;
  plans.push_back(empty);
  FakeSession session(plans, 0.5);
  ASSERT_TRUE(Train(Job(10), network, {Clouds(10), nullptr}, session).status.ok());
  EXPECT_EQ(network.forwards, 1);
  EXPECT_EQ(session.losses().size(), 2);
}

TEST(TrainerTest, PreemptionFinishesTheStepAndThenEndsTheJob) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(3, 100, 10), 0.5);
  bool signalled = false;
  session.on_complete = [&](uint64_t step) { signalled = signalled || step == 4; };
  const Outcome outcome = Train(Job(10), network, {Clouds(100), nullptr}, session,
                                [&] { return signalled ? std::string("SIGTERM") : std::string(); });
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("preempted by SIGTERM"));
  EXPECT_EQ(session.losses().size(), 4);
  ASSERT_TRUE(session.failure().has_value());
  EXPECT_TRUE(session.failure()->preempted());
  EXPECT_FALSE(session.finished());
}

TEST(TrainerTest, WhatTheDataOrTheModelDoWrongBecomesTheFirstCause) {
  LinearNetwork network(2, 1, 0);  // one class, but the labels go to 1
  FakeSession session(Plans(1, 10, 10), 0.5);
  const Outcome outcome = Train(Job(10), network, {Clouds(10), nullptr}, session);
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("forward of step 1: "));
  EXPECT_THAT(session.failure()->text(), HasSubstr("out of bounds"));
  EXPECT_FALSE(session.failure()->preempted());
}

TEST(TrainerTest, AWorkerThatTheJobHasSentAwayIsNoFailure) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(1, 10, 10), 0.5);
  // Found out where it waits.
  session.push_status = absl::CancelledError("the job goes on without this worker");
  session.sent_away = true;
  EXPECT_TRUE(Train(Job(10), network, {Clouds(10), nullptr}, session).status.ok());
  EXPECT_FALSE(session.failure().has_value());
}

TEST(TrainerTest, AnErrorOfTheServiceEndsTheTraining) {
  LinearNetwork network(2, 2, 0);
  FakeSession session(Plans(1, 10, 10), 0.5);
  session.push_status = absl::AbortedError("shard 0 is gone");
  EXPECT_THAT(std::string(Train(Job(10), network, {Clouds(10), nullptr}, session).status.message()),
              HasSubstr("shard 0 is gone"));
}

TEST(ThreadsTest, CoresAreSharedAmongThoseWhoComputeOnThemUnlessTheJobSays) {
  JobConfig job;
  job.mutable_cluster()->set_workers(3);
  EXPECT_EQ(ComputeProcesses(job), 3U);
  EXPECT_EQ(ComputeThreads(job, 8, ComputeProcesses(job)), 2);
  EXPECT_EQ(ComputeThreads(job, 2, ComputeProcesses(job)), 1);
  EXPECT_EQ(ComputeThreads(job, 8, /*processes=*/1), 8);
  job.mutable_cluster()->set_stages(2);
  EXPECT_EQ(ComputeProcesses(job), 6U);
  job.set_threads(5);
  EXPECT_EQ(ComputeThreads(job, 2, 3), 5);
}

}  // namespace
}  // namespace parley
