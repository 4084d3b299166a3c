// Who says too early that it has done its steps.
#include <atomic>
#include <cstdint>

#include "absl/synchronization/notification.h"
#include "tests/contract/contract_test.h"

namespace parley {
namespace {

class FinishContract : public ContractTest {};
PARLEY_OVER_ALL_TRANSPORTS(FinishContract);

constexpr uint64_t kTrainingSamples = 16;
constexpr uint64_t kTestSamples = 6;

// A step without gradients.
void Step(Session& session) {
  const auto verdict = session.Complete(1.0);
  ASSERT_TRUE(verdict.ok()) << verdict.status();
}

void ExpectStepsToDo(Session& session) {
  const absl::StatusOr<bool> finished = session.Finish({});
  ASSERT_TRUE(finished.ok()) << finished.status();
  EXPECT_FALSE(*finished);
}

TEST_P(FinishContract, AfterAnEvaluationItIsToPullAndTrainOn) {
  auto cluster = MakeCluster(2, 2, "epochs: 3");
  cluster->RunWorkers(2, [](Session& session) {
    StartTraining(session, kTrainingSamples, kTestSamples);
    uint64_t steps = 0;
    int told = 0;
    while (true) {
      const auto due = session.PullEvaluation();
      ASSERT_TRUE(due.ok()) << due.status();
      if (due->has_value()) {
        Evaluation part;
        part.set_version((*due)->version);
        part.set_epoch((*due)->epoch);
        part.set_samples((*due)->samples.end() - (*due)->samples.begin());
        ASSERT_TRUE(session.ReportEvaluation(part).ok());
        // It has forgotten to pull.
        ASSERT_FALSE(session.NextStep().has_value());
        if ((*due)->epoch < 3) {
          ExpectStepsToDo(session);
          ++told;
        }
        ASSERT_TRUE(session.Pull().ok());
        continue;
      }
      if (!session.NextStep().has_value()) break;
      Step(session);
      ++steps;
      ASSERT_TRUE(session.Pull().ok());
    }
    EXPECT_EQ(steps, 3 * kTrainingSamples / 8);
    EXPECT_EQ(told, 2);
    ExpectTheEnd(session);
  });
}

TEST_P(FinishContract, NorDoesOneOfTwoEndTheJobOfBoth) {
  for (const char* more :
       {"steps: 3", "steps: 3 consistency { bounded {} }", "steps: 3 consistency { async {} }"}) {
    SCOPED_TRACE(more);
    auto cluster = MakeCluster(2, 2, more);
    std::atomic<uint64_t> all = 0;
    absl::Notification begun;  // worker 0 has: else the other one may leave it a single step
    cluster->RunWorkers(2, [&](Session& session) {
      StartTraining(session, kTrainingSamples);
      if (session.ordinal() == 0) begun.Notify();
      ASSERT_TRUE(begun.WaitForNotificationWithTimeout(absl::Minutes(1)));
      uint64_t steps = 0;
      for (; const auto plan = session.NextStep(); ++steps) {
        if (session.ordinal() == 0 && steps == 1) {
          EXPECT_TRUE(absl::IsFailedPrecondition(session.Finish({}).status())) << "a step is open";
        }
        Step(session);
        if (session.ordinal() == 0 && steps == 0) ExpectStepsToDo(session);
        ASSERT_TRUE(session.Pull().ok());
      }
      all += steps;
      ExpectTheEnd(session);
    });
    EXPECT_EQ(all, 6u) << "three for each worker; in bounded and async the faster one may do more";
  }
}

}  // namespace
}  // namespace parley
