// Jobs in bounded and async over every implementation of the client interfaces.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/faulty_connector.h"
#include "tests/contract/overhearing_connector.h"

namespace parley {
namespace {

class ClockedContract : public ContractTest {};
PARLEY_OVER_ALL_TRANSPORTS(ClockedContract);

constexpr uint64_t kSamples = 46;  // the last lease of an epoch is partial
constexpr char kBounded[] = "epochs: 2 consistency { bounded { bound: 1 reduction: SUM } }";
constexpr char kAsync[] = "epochs: 2 consistency { async { reduction: SUM } }";

// Small integers, so that float sums are exact.
float GradientOf(uint64_t sample, size_t tensor, size_t element) {
  return static_cast<float>((sample * 7 + tensor * 3 + element) % 5) - 2;
}

void SetGradients(Session& session, const StepPlan& plan) {
  for (const size_t tensor : {0, 1}) {
    const absl::Span<float> gradient = As<float>(session.gradient(tensor));
    std::fill(gradient.begin(), gradient.end(), 0);
    for (const uint64_t sample : plan.samples) {
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += GradientOf(sample, tensor, i);
    }
  }
  As<int64_t>(session.gradient(2))[0] = static_cast<int64_t>(plan.step * 100 + session.ordinal());
}

// With SGD of rate 1 each data epoch takes away the sum of the gradients of all samples, whoever
// computes which and in which order.
void ExpectEpochs(Session& session, uint64_t epochs) {
  for (const size_t tensor : {0, 1}) {
    const absl::Span<const float> values = As<float>(session.parameter(tensor));
    std::vector<float> of_element(5, 0);
    for (size_t i = 0; i < 5; ++i) {
      for (uint64_t sample = 0; sample < kSamples; ++sample) {
        of_element[i] -= static_cast<float>(epochs) * GradientOf(sample, tensor, i);
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], of_element[i % 5]) << "tensor " << tensor << " element " << i;
    }
  }
  EXPECT_EQ(As<int64_t>(session.parameter(2))[0] % 100, 0) << "buffers are those of ordinal 0";
}

void Train(Session& session) {
  StartTraining(session, kSamples, /*test_samples=*/100);
  if (testing::Test::HasFatalFailure()) return;
  uint64_t clock = 0;
  while (const auto plan = session.NextStep()) {
    EXPECT_GT(plan->step, clock);
    clock = plan->step;
    SetGradients(session, *plan);
    for (const size_t tensor : {2, 1, 0}) {
      const absl::Status pushed = session.Push(tensor);
      ASSERT_TRUE(pushed.ok()) << pushed;
    }
    const auto verdict = session.Complete(1.0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    const absl::Status pulled = session.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled;
    const auto due = session.PullEvaluation();
    ASSERT_TRUE(due.ok()) << due.status();
    if (!due->has_value()) continue;
    EXPECT_EQ((*due)->version, session.version());
    EXPECT_EQ((*due)->epoch, session.data_epochs());
    ExpectEpochs(session, session.data_epochs());
    Evaluation part;
    part.set_version((*due)->version);
    part.set_epoch((*due)->epoch);
    part.set_samples((*due)->samples.end() - (*due)->samples.begin());
    part.set_classes(true);
    const absl::Status reported = session.ReportEvaluation(part).status();
    EXPECT_TRUE(reported.ok()) << reported;
    const absl::Status again = session.Pull();
    ASSERT_TRUE(again.ok()) << again;
  }
  ExpectTheEnd(session);
}

TEST_P(ClockedContract, EverySampleCountsOnceInEachDataEpoch) {
  for (const char* mode : {kBounded, kAsync}) {
    auto cluster = MakeCluster(3, 2, mode);
    OverhearingConnector connector(cluster->transport().connector());
    cluster->RunWorkers(3, Train, connector);
    for (uint32_t shard : {0, 1}) EXPECT_EQ(cluster->shard(shard).AwaitEnd(), "");
    // Whoever is on the shards' machine lends its gradients, and sends nothing.
    const bool is_local = GetParam() == std::string_view("Local");
    EXPECT_EQ(connector.lent() > 0, is_local);
    EXPECT_EQ(connector.sent() == 0, is_local);
    const GetStatusReply status = cluster->Status();
    EXPECT_EQ(status.step(), 24) << "contributions of 4 samples, and two of 2";
    EXPECT_EQ(status.total_steps(), 24);
    EXPECT_EQ(status.samples(), 2 * kSamples);
    ASSERT_EQ(status.evaluations_size(), 2);
    EXPECT_EQ(status.evaluations(0).version(), 12);
    EXPECT_EQ(status.evaluations(1).samples(), 100);
  }
}

TEST_P(ClockedContract, AndWhereMessagesAreLostAndDoubled) {
  for (const char* mode : {kBounded, kAsync}) {
    auto cluster = MakeCluster(2, 2, mode);
    FaultyConnector faulty(cluster->transport().connector(), 17);
    cluster->RunWorkers(2, Train, faulty);
    EXPECT_GT(faulty.faults(), 10);
  }
}

TEST_P(ClockedContract, StepsAreContributionsForEachWorker) {
  auto cluster = MakeCluster(2, 1, "steps: 5 consistency { async {} }");
  cluster->RunWorkers(2, [](Session& session) {
    StartTraining(session, 4000);
    while (session.NextStep().has_value()) {
      ASSERT_TRUE(session.Complete(0).ok());
      ASSERT_TRUE(session.Pull().ok());
    }
    EXPECT_EQ(session.version(), 10u);
    ExpectTheEnd(session);
  });
  EXPECT_EQ(cluster->Status().step(), 10);
}

TEST_P(ClockedContract, AWorkerClipsItsOwnGradientAndDropsOneThatIsNotFinite) {
  JobConfig job = ContractJob(1, 2, "steps: 3 consistency { bounded {} }");
  job.mutable_optimizer()->set_clip_norm(1);
  job.mutable_optimizer()->set_skip_nonfinite(true);
  LocalCluster cluster(MakeTransport(), job);
  cluster.RunWorkers(1, [](Session& session) {
    StartTraining(session, 4000);
    std::vector<float> values;
    while (const auto plan = session.NextStep()) {
      for (float& gradient : As<float>(session.gradient(0))) gradient = 0;
      for (float& gradient : As<float>(session.gradient(1))) gradient = 0;
      As<float>(session.gradient(0))[7] = plan->step == 2 ? NAN : 3;
      As<float>(session.gradient(1))[0] = 4;  // the norm is 5
      ASSERT_TRUE(session.Push(0).ok());
      ASSERT_TRUE(session.Push(1).ok());
      const auto verdict = session.Complete(0);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_EQ(verdict->outcome(), plan->step == 2 ? Verdict::SKIP : Verdict::APPLY);
      ASSERT_TRUE(session.Pull().ok());
      values.push_back(As<float>(session.parameter(0))[7]);
      values.push_back(As<float>(session.parameter(1))[0]);
    }
    ASSERT_EQ(values.size(), 6u);
    const std::vector<float> expected = {-0.6F, -0.8F, -0.6F, -0.8F, -1.2F, -1.6F};
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
    ExpectTheEnd(session);
  });
  EXPECT_EQ(cluster.Status().skipped_steps(), 1);
}

TEST_P(ClockedContract, AContributionIsItsMeanTimesItsWeightAndNotDividedAgain) {
  // 6 samples in leases of 4: one of weight 1, one of 1/2.
  auto cluster = MakeCluster(1, 1, "epochs: 1 consistency { async {} }");
  cluster->RunWorkers(1, [](Session& session) {
    StartTraining(session, 6);
    float expected = 0;
    while (const auto plan = session.NextStep()) {
      for (float& gradient : As<float>(session.gradient(1))) gradient = 2;
      ASSERT_TRUE(session.Push(1).ok());
      expected -= plan->samples.size() == 4 ? 2.0F : 1.0F;
      ASSERT_TRUE(session.Complete(0).ok());
      ASSERT_TRUE(session.Pull().ok());
      EXPECT_EQ(As<float>(session.parameter(1))[3], expected);
      EXPECT_EQ(As<float>(session.parameter(0))[3], 0) << "not pushed";
    }
    EXPECT_EQ(expected, -3);
    ExpectTheEnd(session);
  });
}

}  // namespace
}  // namespace parley
