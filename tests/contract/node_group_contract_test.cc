// Sessions of workers that are a node group, over all transports.
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/reduce/given_sums.h"
#include "common/clock/steady_now.h"
#include "tests/contract/contract_test.h"

namespace parley {
namespace {

class NodeGroupContract : public ContractTest {
 protected:
  std::unique_ptr<LocalCluster> MakeGroups(int workers, uint32_t group, const std::string& more) {
    JobConfig job = ContractJob(workers, 2, more);
    job.mutable_cluster()->set_group(group);
    if (group > 1) job.mutable_consistency()->mutable_sync()->set_lost_worker(WAIT);
    return std::make_unique<LocalCluster>(MakeTransport(), job);
  }
};
PARLEY_OVER_ALL_TRANSPORTS(NodeGroupContract);

constexpr char kDeterministic[] =
    "epochs: 2 threads: 1 consistency { sync { deterministic: true } }";

float Gradient(uint32_t worker, uint64_t step, size_t tensor, size_t element) {
  std::minstd_rand random(1 + worker * 7919 + step * 104729 + tensor * 1299709 + element * 31);
  random();
  return static_cast<float>(random() % 100'000) / 777.0f - 64.0f;
}

// What a job of some workers ends with.
struct End {
  std::vector<std::string> parameters;
  std::map<uint64_t, std::map<uint32_t, std::vector<uint64_t>>> samples;  // by step and worker
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
};

End Train(LocalCluster& cluster, int workers, uint64_t samples) {
  absl::Mutex mu;
  End end;
  cluster.RunWorkers(workers, [&](Session& session) {
    const uint32_t worker = session.member_ordinal();
    StartTraining(session, samples);
    while (const auto plan = session.NextStep()) {
      {
        absl::MutexLock lock(&mu);
        end.samples[plan->step][worker] = plan->samples;
      }
      for (const size_t tensor : {1, 0}) {
        const absl::Span<float> gradient = As<float>(session.gradient(tensor));
        for (size_t i = 0; i < gradient.size(); ++i) {
          // Not a number, where there is no data: it must not count.
          gradient[i] = plan->weight == 0 ? NAN : Gradient(worker, plan->step, tensor, i);
        }
        // Worker 2 never has a gradient of the small one.
        if (tensor == 1 && worker == 2) continue;
        ASSERT_TRUE(session.Push(tensor).ok());
      }
      As<int64_t>(session.gradient(2))[0] = static_cast<int64_t>(plan->step * 100 + worker);
      ASSERT_TRUE(session.Push(2).ok());
      const auto verdict = session.Complete(1.0);
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_EQ(verdict->outcome(), Verdict::APPLY);
      const absl::Status pulled = session.Pull();
      ASSERT_TRUE(pulled.ok()) << pulled;
    }
    {
      absl::MutexLock lock(&mu);
      end.pushed_bytes += session.traffic().pushed_bytes;
      end.pulled_bytes += session.traffic().pulled_bytes;
      std::vector<std::string> parameters;
      for (size_t tensor = 0; tensor < 3; ++tensor) {
        const absl::Span<const std::byte> bytes = session.parameter(tensor);
        parameters.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
      EXPECT_TRUE(end.parameters.empty() || end.parameters == parameters);
      end.parameters = std::move(parameters);
    }
    ExpectTheEnd(session);
  });
  return end;
}

TEST_P(NodeGroupContract, OneGroupComputesBitwiseWhatItsWorkersDoAlone) {
  // Two steps in an epoch: one in which all have a full batch of 4, and one with 4, 3, 0 and 0.
  const End alone = Train(*MakeGroups(4, 1, kDeterministic), 4, 23);
  const End group = Train(*MakeGroups(4, 4, kDeterministic), 4, 23);
  EXPECT_EQ(group.samples, alone.samples);
  EXPECT_EQ(group.samples.size(), 4u);
  EXPECT_TRUE(group.parameters == alone.parameters) << "other bits";
}

TEST_P(NodeGroupContract, AGroupPushesAQuarterOfWhatFourWorkersDo) {
  const End alone = Train(*MakeGroups(4, 1, kDeterministic), 4, 32);
  const End group = Train(*MakeGroups(4, 4, kDeterministic), 4, 32);
  // One of four has no gradient of the small tensor, which the group has.
  const uint64_t small = 7 * sizeof(float);
  EXPECT_EQ((alone.pushed_bytes + group.samples.size() * small), 4 * group.pushed_bytes);
}

TEST_P(NodeGroupContract, AGroupPullsFromOtherMachinesOnceForAll) {
  const End alone = Train(*MakeGroups(4, 1, kDeterministic), 4, 32);
  const End group = Train(*MakeGroups(4, 4, kDeterministic), 4, 32);
  std::printf("pulled: %g of what single workers do\n",
              static_cast<double>(group.pulled_bytes) / static_cast<double>(alone.pulled_bytes));
  if (std::string_view(GetParam()) == "Local") {
    // All read where the shards have it; before a rank's own link is up it may take a value from
    // another rank.
    EXPECT_LE(group.pulled_bytes, alone.pulled_bytes);
    EXPECT_GT(10 * group.pulled_bytes, 9 * alone.pulled_bytes);
  } else {
    // A quarter, unless a rank was so slow that the others did not wait for it.
    EXPECT_LT(2 * group.pulled_bytes, alone.pulled_bytes);
  }
  EXPECT_TRUE(group.parameters == alone.parameters) << "other bits";
}

TEST_P(NodeGroupContract, SeveralGroupsTrainTheSameModel) {
  const End end = Train(*MakeGroups(4, 2, kDeterministic), 4, 23);
  const End again = Train(*MakeGroups(4, 2, kDeterministic), 4, 23);
  EXPECT_TRUE(end.parameters == again.parameters) << "other bits in another run";
  EXPECT_EQ(end.samples, Train(*MakeGroups(4, 1, kDeterministic), 4, 23).samples);
}

// Small integers, so that float sums are exact.
float IntegerGradient(uint32_t worker, uint64_t step, size_t tensor, size_t element) {
  return static_cast<float>((worker * 7919 + step * 104729 + tensor * 1299709 + element * 31) %
                            201) -
         100.0f;
}

// Where in a step a rank is lost.
enum class Point { kOpened, kHalf, kPushed, kNever };

constexpr uint32_t kWorkers = 3;
constexpr uint64_t kSteps = 9;

// Until the end, or a rank's own.
void TrainUntilLost(Session& session, const std::function<Point(uint64_t step)>& lost_at) {
  StartTraining(session, 4000);
  if (testing::Test::HasFatalFailure()) return;
  while (const auto plan = session.NextStep()) {
    const Point point = lost_at(plan->step);
    if (point == Point::kOpened) return;
    for (const size_t tensor : {1, 0}) {
      const absl::Span<float> gradient = As<float>(session.gradient(tensor));
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = IntegerGradient(session.member_ordinal(), plan->step, tensor, i);
      }
      ASSERT_TRUE(session.Push(tensor).ok());
      if (point == Point::kHalf) return;
    }
    if (point == Point::kPushed) return;
    const auto verdict = session.Complete(1.0);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    const absl::Status pulled = session.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled;
    for (const size_t tensor : {0, 1}) {
      const absl::Span<const float> values = As<float>(session.parameter(tensor));
      for (size_t i = 0; i < values.size(); i += 1 + i / 8) {
        float expected = 0;
        for (uint64_t step = 1; step <= session.version(); ++step) {
          for (uint32_t worker = 0; worker < kWorkers; ++worker) {
            expected -= IntegerGradient(worker, step, tensor, i);
          }
        }
        ASSERT_EQ(values[i], expected) << "version " << session.version() << " element " << i;
      }
    }
  }
  ExpectTheEnd(session);
}

TEST_P(NodeGroupContract, ARankThatIsLostAnywhereInAStepIsReplacedAndSumsAreExact) {
  auto cluster = MakeGroups(
      kWorkers, kWorkers,
      absl::StrCat("max_restarts: 9 steps: ", kSteps, " consistency { sync { reduction: SUM } }"));
  std::array<std::atomic<bool>, 3> lost = {};
  const auto lost_at = [&](uint32_t rank, uint64_t step) {
    for (const Point point : {Point::kOpened, Point::kHalf, Point::kPushed}) {
      const auto number = static_cast<uint32_t>(point);
      // Each rank once.
      if (rank != number || step != 2 + 2 * number || lost[number].exchange(true)) continue;
      return point;
    }
    return Point::kNever;
  };
  std::atomic<int> next = 0;
  std::vector<std::thread> processes;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    processes.emplace_back([&] {
      bool over = false;
      while (!over) {
        Session::Options options;
        options.job = cluster->job();
        options.coordinator = cluster->coordinator_address();
        options.address = absl::StrCat("127.0.0.1:", 60000 + next++);
        auto session = Session::Join(options, cluster->transport().connector());
        ASSERT_TRUE(session.ok()) << session.status();
        over = true;
        TrainUntilLost(**session, [&](uint64_t step) {
          const Point point = lost_at((*session)->member_ordinal(), step);
          over = point == Point::kNever;
          return point;
        });
      }
    });
  }
  for (std::thread& process : processes) process.join();
  for (const auto& each : lost) EXPECT_TRUE(each);
  for (const uint32_t shard : {0, 1}) EXPECT_EQ(cluster->shard(shard).AwaitEnd(), "");
}

// The training thread may be waiting for a device then, and that for the lost rank.
TEST_P(NodeGroupContract, ThatARankIsLostIsKnownBeforeAnyVerbSaysSo) {
  auto cluster = MakeGroups(2, 2, "max_restarts: 9 steps: 5");
  const auto join = [&](int worker, GivenSums** sums) {
    Session::Options options;
    options.job = cluster->job();
    options.coordinator = cluster->coordinator_address();
    options.address = absl::StrCat("127.0.0.1:", 60000 + worker);
    options.reduce_by = [sums](std::unique_ptr<Reducer> values) -> std::unique_ptr<Reducer> {
      auto given = std::make_unique<GivenSums>(std::move(values));
      *sums = given.get();
      return given;
    };
    return Session::Join(options, cluster->transport().connector());
  };
  GivenSums* sums[2] = {};
  auto lost = join(1, &sums[1]);
  ASSERT_TRUE(lost.ok()) << lost.status();
  auto stays = join(2, &sums[0]);
  ASSERT_TRUE(stays.ok()) << stays.status();
  std::thread other([&] { StartTraining(**lost, 4000); });
  StartTraining(**stays, 4000);
  other.join();
  const std::function<bool()> stands = sums[0]->group()->stands;
  EXPECT_TRUE(stands());
  lost->reset();
  const absl::Time deadline = SteadyNow() + absl::Seconds(60);
  while (stands() && SteadyNow() < deadline) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_FALSE(stands());
  stays->reset();
  (void)stands();  // whoever has it may still ask
}

}  // namespace
}  // namespace parley
