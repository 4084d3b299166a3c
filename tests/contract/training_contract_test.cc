#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <random>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/nonzero_blocks.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/faulty_connector.h"
#include "tests/contract/overhearing_connector.h"

namespace parley {
namespace {

class TrainingContract : public ContractTest {};
PARLEY_OVER_ALL_TRANSPORTS(TrainingContract);

constexpr char kSum[] = "steps: 6 consistency { sync { reduction: SUM } }";

// The gradient of a contributor: small integers, so that float sums are exact.
float IntegerGradient(uint32_t contributor, uint64_t step, size_t tensor, size_t element) {
  const uint64_t mixed = (contributor + 1) * 7919 + step * 104729 + tensor * 1299709 + element * 31;
  return static_cast<float>(static_cast<int64_t>(mixed % 201) - 100);
}

// It repeats itself from element to element.
constexpr size_t kPeriod = 201;
std::array<float, kPeriod> GradientPeriod(uint32_t contributor, uint64_t step, size_t tensor) {
  std::array<float, kPeriod> period;
  for (size_t i = 0; i < kPeriod; ++i) period[i] = IntegerGradient(contributor, step, tensor, i);
  return period;
}

// Trains to the end with integer gradients under SGD with rate 1, where each version must be
// exactly minus the sum of all gradients so far. ahead: by PullAhead, with each tensor's values
// awaited, piece by piece, when its next gradient is made, which is pushed piece by piece.
void TrainExactly(Session& session, uint32_t workers, bool ahead = false) {
  StartTraining(session, 4000);
  if (testing::Test::HasFatalFailure()) return;
  std::vector<std::vector<float>> expected(2);
  expected[0].resize(kBigRows * 800);
  expected[1].resize(7);
  const auto check = [&](size_t tensor, size_t until = std::numeric_limits<size_t>::max()) {
    const absl::Span<const float> values =
        As<float>(session.parameter(tensor)).first(std::min(until, expected[tensor].size()));
    EXPECT_TRUE(std::equal(values.begin(), values.end(), expected[tensor].begin()))
        << "version " << session.version() << " tensor " << tensor << " until " << until;
  };
  while (const auto plan = session.NextStep()) {
    for (size_t tensor : {1, 0}) {
      if (ahead) {
        for (const size_t pieces : {3, 2, 1}) {
          const size_t until = expected[tensor].size() / pieces;
          const absl::Status here = session.AwaitParameterUntil(tensor, until * sizeof(float));
          ASSERT_TRUE(here.ok()) << here;
          check(tensor, until);
        }
      }
      const absl::Span<float> gradient = As<float>(session.gradient(tensor));
      const auto own = GradientPeriod(session.ordinal(), plan->step, tensor);
      std::array<float, kPeriod> all = {};
      for (uint32_t worker = 0; worker < workers; ++worker) {
        const auto period = GradientPeriod(worker, plan->step, tensor);
        for (size_t i = 0; i < kPeriod; ++i) all[i] += period[i];
      }
      for (size_t i = 0; i < gradient.size(); ++i) {
        if (ahead && i > 0 && i % (gradient.size() / 8 + 1) == 0) {
          ASSERT_TRUE(session.PushUntil(tensor, i * sizeof(float)).ok());
        }
        gradient[i] = own[i % kPeriod];
        expected[tensor][i] -= all[i % kPeriod];
      }
      const absl::Status pushed = session.Push(tensor);
      ASSERT_TRUE(pushed.ok()) << pushed;
    }
    // Each worker has its own; contributor 0's counts.
    As<int64_t>(session.gradient(2))[0] =
        static_cast<int64_t>((uint64_t{1} << 60) + plan->step * 10 + session.ordinal());
    ASSERT_TRUE(session.Push(2).ok());
    const auto verdict = session.Complete(1.0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_EQ(verdict->step(), plan->step);
    EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
    EXPECT_EQ(verdict->shares_size(), static_cast<int>(workers));
    const absl::Status pulled = ahead ? session.PullAhead() : session.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled;
    for (size_t tensor = 0; tensor < 2 && !ahead; ++tensor) check(tensor);
    ASSERT_FALSE(testing::Test::HasFailure());
    EXPECT_EQ(As<int64_t>(session.parameter(2))[0],
              static_cast<int64_t>((uint64_t{1} << 60) + plan->step * 10));
  }
  ExpectTheEnd(session);
}

TEST_P(TrainingContract, IntegerGradientsOfTwoContributorsSumExactly) {
  auto cluster = MakeCluster(2, 2, kSum);
  cluster->RunWorkers(2, [](Session& session) { TrainExactly(session, 2); });
  for (uint32_t shard : {0, 1}) EXPECT_EQ(cluster->shard(shard).AwaitEnd(), "");
}

TEST_P(TrainingContract, WhoPullsAheadMakesEachGradientWhenTheTensorsValuesAreHere) {
  // Each slice in a message of its own, so that it goes as soon as it is complete.
  auto cluster =
      MakeCluster(2, 2, "steps: 12 bucket_kib: 100 consistency { sync { reduction: SUM } }");
  cluster->RunWorkers(2, [](Session& session) { TrainExactly(session, 2, /*ahead=*/true); });
  for (uint32_t shard : {0, 1}) EXPECT_EQ(cluster->shard(shard).AwaitEnd(), "");
}

TEST_P(TrainingContract, NarrowGradientsAreAddedUpAsFloatsAndAreHalfOfTheBytes) {
  // These integers are numbers of either type, and their sums are of neither.
  for (const char* narrow : {"WIRE_BFLOAT16", "WIRE_FLOAT16"}) {
    auto cluster = MakeCluster(2, 2, absl::StrCat(kSum, " gradients_on_wire: ", narrow));
    cluster->RunWorkers(2, [](Session& session) {
      TrainExactly(session, 2);
      if (!SendsBytes()) return;
      EXPECT_EQ(session.traffic().pushed_bytes, 6 * (2 * (kBigRows * 800 + 7) + sizeof(int64_t)));
    });
  }
}

// A few rows of the large tensor have a gradient, as of an embedding: others in each step.
TEST_P(TrainingContract, ZerosOfAGradientAreLeftOutAndSumsStayExact) {
  for (const char* more :
       {"", "consistency { sync { reduction: SUM update_ahead: true } }",
        "threads: 1 consistency { sync { reduction: SUM deterministic: true } }"}) {
    SCOPED_TRACE(more);
    auto cluster = MakeCluster(
        2, 2,
        absl::StrCat("steps: 8 ", *more != 0 ? more : "consistency { sync { reduction: SUM } }"));
    cluster->RunWorkers(2, [](Session& session) {
      StartTraining(session, 4000);
      std::vector<float> expected(kBigRows * 800, 0);
      uint64_t rows = 0;
      while (const auto plan = session.NextStep()) {
        const absl::Span<float> gradient = As<float>(session.gradient(0));
        std::fill(gradient.begin(), gradient.end(), 0.0F);
        for (const uint32_t worker : {0, 1}) {
          for (size_t row = worker + plan->step; row < kBigRows; row += 40 + 3 * worker) {
            for (size_t i = row * 800; i < (row + 1) * 800; ++i) {
              const float value = IntegerGradient(worker, plan->step, 0, i);
              expected[i] -= value;
              if (worker == session.ordinal()) gradient[i] = value;
            }
            rows += worker == session.ordinal() ? 1 : 0;
          }
        }
        // The one says what it knows, the other lets it be found out.
        const absl::Span<const std::byte> bytes = session.gradient(0);
        const std::string nonzero = FindNonzero(bytes, sizeof(float));
        ASSERT_FALSE(nonzero.empty());
        EXPECT_TRUE(absl::IsInvalidArgument(session.PushNonzero(0, nonzero + "x")));
        EXPECT_TRUE(absl::IsInvalidArgument(session.PushNonzero(2, "x")));
        const absl::Status pushed =
            session.ordinal() == 0 ? session.PushNonzero(0, nonzero) : session.Push(0);
        ASSERT_TRUE(pushed.ok()) << pushed;
        EXPECT_TRUE(absl::IsFailedPrecondition(session.PushNonzero(0, nonzero)));
        const auto verdict = session.Complete(1.0);
        ASSERT_TRUE(verdict.ok()) << verdict.status();
        ASSERT_TRUE(session.Pull().ok());
        const absl::Span<const float> values = As<float>(session.parameter(0));
        ASSERT_TRUE(std::equal(values.begin(), values.end(), expected.begin()))
            << "version " << session.version();
      }
      ExpectTheEnd(session);
      if (!SendsBytes()) return;
      // A row lies in two blocks of 1,024 elements, at most.
      EXPECT_GT(session.traffic().pushed_bytes, rows * 800 * sizeof(float));
      EXPECT_LE(session.traffic().pushed_bytes, rows * 2048 * sizeof(float));
    });
  }
}

TEST_P(TrainingContract, TheJobSaysHowMuchTravelsInOneMessage) {
  size_t messages[2] = {};
  for (const bool small : {false, true}) {
    // The large tensor is 1.22 MiB in two slices.
    auto cluster = MakeCluster(1, 1, absl::StrCat(kSum, small ? " bucket_kib: 100" : ""));
    OverhearingConnector connector(cluster->transport().connector());
    cluster->RunWorkers(
        1, [](Session& session) { TrainExactly(session, 1); }, connector);
    messages[small] = connector.pushes().size() + connector.pulls();
  }
  EXPECT_GE(messages[true], 2 * messages[false]);
}

TEST_P(TrainingContract, SumsStayExactWhereMessagesAreLostAndDoubled) {
  auto cluster = MakeCluster(2, 2, kSum);
  FaultyConnector faulty(cluster->transport().connector(), 17);
  cluster->RunWorkers(
      2, [](Session& session) { TrainExactly(session, 2); }, faulty);
  EXPECT_GT(faulty.faults(), 10);
}

TEST_P(TrainingContract, DeterministicSumsAreExactToo) {
  auto cluster = MakeCluster(
      3, 2, "steps: 3 threads: 1 consistency { sync { reduction: SUM deterministic: true } }");
  cluster->RunWorkers(3, [](Session& session) { TrainExactly(session, 3); });
}

TEST_P(TrainingContract, TheMeanIsWeightedBySamples) {
  // 11 samples, 4 to each of 2 contributors: weights 1 and 1, then 3/4 and 0.
  auto cluster = MakeCluster(2, 2, "epochs: 1");
  std::atomic<int> samples = 0;
  OverhearingConnector connector(cluster->transport().connector());
  const auto work = [&](Session& session) {
    StartTraining(session, 11);
    float expected = 0;
    while (const auto plan = session.NextStep()) {
      samples += static_cast<int>(plan->samples.size());
      const bool last = plan->step == 2;
      EXPECT_EQ(plan->ends_epoch, last);
      EXPECT_EQ(plan->weight, !last ? 1 : session.ordinal() == 0 ? 0.75 : 0);
      // Not a number, where there is no data: it must not count.
      const float mine = plan->weight == 0 ? NAN : 2.0f + 4.0f * session.ordinal();
      expected -= last ? 2.0f : 4.0f;
      for (size_t tensor : {0, 1}) {
        for (float& gradient : As<float>(session.gradient(tensor))) gradient = mine;
        ASSERT_TRUE(session.Push(tensor).ok());
      }
      const auto verdict = session.Complete(0.5);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_EQ(verdict->total_weight(), last ? 0.75 : 2.0);
      ASSERT_TRUE(session.Pull().ok());
      for (size_t tensor : {0, 1}) {
        for (float value : As<float>(session.parameter(tensor))) ASSERT_FLOAT_EQ(value, expected);
      }
    }
    ExpectTheEnd(session);
  };
  cluster->RunWorkers(2, work, connector);
  // What is multiplied by a weight on its way, too.
  EXPECT_EQ(connector.sent() == 0, GetParam() == std::string_view("Local"));
  EXPECT_EQ(samples, 11);
}

TEST_P(TrainingContract, AveragedBuffersAndAnElasticRateGoBySamples) {
  // 13 samples, 4 to each of 2 contributors: weights 1 and 1, then 1 and 1/4.
  auto cluster = MakeCluster(2, 2,
                             "epochs: 1 consistency { sync { buffers: AVERAGE } } "
                             "learning_rate { elastic: true }");
  cluster->RunWorkers(2, [&](Session& session) {
    std::vector<TensorSpec> model(2);
    model[0].set_name("w");
    model[1].set_name("seen");
    model[1].set_buffer(true);
    for (TensorSpec& tensor : model) tensor.set_dtype(F32);
    ASSERT_TRUE(session.Register(model, 13, 0).ok());
    if (session.must_initialize()) {
      ASSERT_TRUE(session.Initialize({session.gradient(0), session.gradient(1)}).ok());
    }
    ASSERT_TRUE(session.Pull().ok());
    const auto own = static_cast<float>(session.ordinal());
    while (const auto plan = session.NextStep()) {
      const bool last = plan->step == 2;
      ASSERT_EQ(plan->weight, last && session.ordinal() == 1 ? 0.25 : 1);
      As<float>(session.gradient(0))[0] = 1;
      As<float>(session.gradient(1))[0] = own;
      for (const size_t tensor : {0, 1}) ASSERT_TRUE(session.Push(tensor).ok());
      const auto verdict = session.Complete(0);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_EQ(verdict->rate_scale(), last ? 0.625 : 1);
      ASSERT_TRUE(session.Pull().ok());
      EXPECT_EQ(As<float>(session.parameter(0))[0], last ? -1.625F : -1);
      EXPECT_EQ(As<float>(session.parameter(1))[0], last ? 0.2F : 0.5F);
    }
    ExpectTheEnd(session);
  });
}

TEST_P(TrainingContract, ASessionKnowsWhoIsOnItsMachine) {
  auto cluster = MakeCluster(3, 1, "steps: 1");
  cluster->set_hosts({"here", "there", "here"});
  std::atomic<size_t> alone = 0;
  std::atomic<size_t> in_pairs = 0;
  std::atomic<size_t> first = 0;
  std::atomic<size_t> second = 0;
  cluster->RunWorkers(3, [&](Session& session) {
    StartTraining(session, 4000);
    if (session.processes_here() == 1) ++alone;
    if (session.processes_here() == 2) ++in_pairs;
    if (session.local_ordinal() == 0) ++first;
    if (session.local_ordinal() == 1) {
      ++second;
      EXPECT_EQ(session.processes_here(), 2);
      EXPECT_GT(session.member_ordinal(), 0) << "the other one here has a lower ordinal";
    }
    ASSERT_TRUE(session.NextStep().has_value());
    ASSERT_TRUE(session.Complete(0).ok());
    ASSERT_TRUE(session.Pull().ok());
    ExpectTheEnd(session);
  });
  EXPECT_EQ(alone, 1);
  EXPECT_EQ(in_pairs, 2);
  EXPECT_EQ(first, 2) << "of each machine one";
  EXPECT_EQ(second, 1);
}

TEST_P(TrainingContract, AStepOfWhichAGradientIsNotPushedWholeIsNotCompleted) {
  auto cluster = MakeCluster(1, 1, "steps: 1 consistency { sync { reduction: SUM } }");
  cluster->RunWorkers(1, [](Session& session) {
    StartTraining(session, 4000);
    ASSERT_TRUE(session.NextStep().has_value());
    for (float& gradient : As<float>(session.gradient(0))) gradient = 5;
    ASSERT_TRUE(session.PushUntil(0, 100).ok());
    const absl::Time begin = SteadyNow();
    const auto verdict = session.Complete(0);
    EXPECT_EQ(verdict.status().code(), absl::StatusCode::kFailedPrecondition) << verdict.status();
    EXPECT_LT(SteadyNow() - begin, absl::Seconds(10)) << "it does not ask the job about it";
    ASSERT_TRUE(session.Push(0).ok());
    ASSERT_TRUE(session.Complete(0).ok());
    ASSERT_TRUE(session.Pull().ok());
    EXPECT_EQ(As<float>(session.parameter(0))[6], -5);
    ExpectTheEnd(session);
  });
}

TEST_P(TrainingContract, ATensorThatNobodyPushesStaysAsItIs) {
  auto cluster = MakeCluster(2, 2, "steps: 2 consistency { sync { reduction: SUM } }");
  cluster->RunWorkers(2, [](Session& session) {
    StartTraining(session, 4000);
    while (const auto plan = session.NextStep()) {
      // `scale` comes from one contributor in step 2 only; `big` from nobody.
      if (plan->step == 2 && session.ordinal() == 1) {
        for (float& gradient : As<float>(session.gradient(1))) gradient = 5;
        ASSERT_TRUE(session.Push(1).ok());
        EXPECT_EQ(session.Push(1).code(), absl::StatusCode::kFailedPrecondition);
      }
      EXPECT_EQ(session.Push(9).code(), absl::StatusCode::kInvalidArgument);
      const auto verdict = session.Complete(0);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      ASSERT_TRUE(session.Pull().ok());
      EXPECT_EQ(As<float>(session.parameter(0))[0], 0);
      EXPECT_EQ(As<float>(session.parameter(1))[6], plan->step == 2 ? -5 : 0);
    }
    ExpectTheEnd(session);
  });
}

TEST_P(TrainingContract, EvaluationPartsAddUp) {
  auto cluster = MakeCluster(3, 1, "steps: 1");
  cluster->RunWorkers(3, [](Session& session) {
    StartTraining(session, 4000, 100);
    EXPECT_FALSE(session.PullEvaluation()->has_value());
    ASSERT_TRUE(session.NextStep().has_value());
    ASSERT_TRUE(session.Complete(0).ok());
    ASSERT_TRUE(session.Pull().ok());
    const auto due = session.PullEvaluation();
    ASSERT_TRUE(due.ok()) << due.status();
    ASSERT_TRUE(due->has_value());
    EXPECT_EQ((*due)->version, 1);
    EXPECT_EQ((*due)->epoch, 1);
    const SampleRange mine = (*due)->samples;
    EXPECT_EQ(mine.begin(), session.ordinal() == 0 ? 0 : session.ordinal() * 33 + 1);
    Evaluation part;
    part.set_version(1);
    part.set_epoch(1);
    part.set_samples(mine.end() - mine.begin());
    part.set_correct(10 * session.ordinal());
    part.set_classes(true);
    const absl::Status reported = session.ReportEvaluation(part).status();
    EXPECT_TRUE(reported.ok()) << reported;
    ASSERT_TRUE(session.Pull().ok());
    EXPECT_FALSE(session.PullEvaluation()->has_value());
    ExpectTheEnd(session);
  });
  const GetStatusReply status = cluster->Status();
  ASSERT_EQ(status.evaluations_size(), 1);
  EXPECT_EQ(status.evaluations(0).samples(), 100);
  EXPECT_EQ(status.evaluations(0).correct(), 30);
}

TEST_P(TrainingContract, FinishesWithoutACheckpoint) {
  auto cluster = MakeCluster(1, 1, "steps: 2");
  cluster->RunWorkers(1, [](Session& session) {
    StartTraining(session, 4000);
    while (session.NextStep().has_value()) ASSERT_TRUE(session.Complete(4).ok());
    PhaseSeconds seconds;
    seconds.set_phase("forward");
    seconds.set_seconds(2.5);
    ExpectTheEnd(session, {seconds});
    EXPECT_FALSE(session.failure().has_value());
  });
  EXPECT_EQ(cluster->shard(0).AwaitEnd(), "");
  const GetStatusReply status = cluster->Status();
  EXPECT_EQ(status.phase(), FINISHED);
  EXPECT_EQ(status.step(), 2);
  ASSERT_EQ(status.phase_seconds_size(), 1);
  EXPECT_EQ(status.phase_seconds(0).seconds(), 2.5);
}

TEST_P(TrainingContract, AnotherModelThanTheOthersIsRefused) {
  auto cluster = MakeCluster(2, 1, "steps: 2");
  std::atomic<int> refused = 0;
  std::atomic<int> failed = 0;
  cluster->RunWorkers(2, [&](Session& session) {
    std::vector<TensorSpec> model = Model();
    if (session.ordinal() == 1) model[1].set_shape(0, 8);
    const absl::Status status = session.Register(model, 4000, 0);
    if (absl::IsInvalidArgument(status)) {
      ++refused;
      session.Fail(std::string(status.message()), false);
    } else {
      EXPECT_FALSE(status.ok());
      ++failed;
    }
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace parley
