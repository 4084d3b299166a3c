#include "client/parley/wait_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace parley {
namespace {

using Answer = AskedProcess::Answer;
using Kind = RootCause::Kind;

constexpr absl::Duration kLong = absl::Seconds(2);
const Place kCoordinator(COORDINATOR, 0);
Place W(uint32_t ordinal) { return {WORKER, ordinal}; }
Place S(uint32_t ordinal) { return {SHARD, ordinal}; }

Wait WaitOn(const std::string& what, double seconds, const std::vector<Place>& on) {
  Wait wait;
  wait.set_what(what);
  wait.set_seconds(seconds);
  for (const Place& place : on) {
    wait.add_on()->set_role(place.first);
    wait.mutable_on()->rbegin()->set_ordinal(place.second);
  }
  return wait;
}

AskedProcess Process(const Place& place, std::vector<Wait> waits = {}) {
  AskedProcess process;
  process.place = place;
  process.name = PlaceName(place) + " at h:1";
  process.waits = std::move(waits);
  return process;
}

AskedProcess Silent(const Place& place, double seconds) {
  AskedProcess process = Process(place);
  process.answer = Answer::kSilent;
  process.error = "no answer within 2 s";
  process.silent_for = seconds;
  return process;
}

TEST(WaitGraph, AJobWhoseWaitsAreShortHasNoRootCause) {
  EXPECT_TRUE(
      FindRootCauses({Process(kCoordinator), Process(S(0), {WaitOn("Complete", 1.9, {W(0), W(1)})}),
                      Process(W(0), {WaitOn("the verdict", 0.3, {S(0)})}),
                      Process(W(1), {WaitOn("backward", 1.9, {})})},
                     kLong)
          .empty());
}

TEST(WaitGraph, AChainEndsInTheOneThatDoesNotAnswer) {
  const auto causes =
      FindRootCauses({Process(kCoordinator, {WaitOn("a heartbeat of shard 1", 6, {S(1)})}),
                      Process(S(0), {WaitOn("Complete", 8, {W(0), W(1)})}), Silent(S(1), 7.5),
                      Process(W(0), {WaitOn("pushing to shard 1", 8, {S(1)})}),
                      Process(W(1), {WaitOn("pushing to shard 1", 8, {S(1)})})},
                     kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].kind, Kind::kSilent);
  EXPECT_EQ(causes[0].places, std::vector<Place>{S(1)});
  EXPECT_EQ(causes[0].waiting, (std::vector<Place>{kCoordinator, S(0), W(0), W(1)}));
  EXPECT_EQ(
      causes[0].text,
      "shard-1 at h:1 does not answer (no answer within 2 s); the coordinator heard of it 7.5 s "
      "ago; wait for it: coordinator, shard-0, worker-0, worker-1");
}

TEST(WaitGraph, AWorkerThatComputesForLongIsTheRoot) {
  const auto causes =
      FindRootCauses({Process(S(0), {WaitOn("Complete", 30, {W(1)})}),
                      Process(W(0), {WaitOn("the verdict", 28, {S(0)})}),
                      Process(W(1), {WaitOn("forward and backward of step 12", 30, {})})},
                     kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].kind, Kind::kWorking);
  EXPECT_NE(causes[0].text.find("worker-1 at h:1 is at work: forward and backward of step 12 (for "
                                "30.0 s); wait for it: shard-0, worker-0"),
            std::string::npos)
      << causes[0].text;
}

TEST(WaitGraph, AShortWaitCountsWhereALongOneLeadsToIt) {
  // The leader was given its view a moment ago; the worker has waited for longer.
  const auto causes =
      FindRootCauses({Process(S(0), {WaitOn("Complete", 0.1, {W(1)})}),
                      Process(W(0), {WaitOn("the verdict", 28, {S(0)})}), Silent(W(1), 9)},
                     kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].waiting, (std::vector<Place>{S(0), W(0)}));
}

TEST(WaitGraph, BesideALongWaitAShortOneDoesNotCount) {
  const auto causes =
      FindRootCauses({Process(W(0), {WaitOn("a", 9, {S(1)}), WaitOn("b", 0.1, {S(0)})}),
                      Process(S(0), {WaitOn("loading", 1, {})}), Silent(S(1), 9)},
                     kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].places, std::vector<Place>{S(1)});
}

TEST(WaitGraph, APlaceThatNobodyHasIsNamedWithWhatIsSaidOfIt) {
  const auto causes = FindRootCauses(
      {Process(kCoordinator, {WaitOn("worker 1 has not joined", 20, {W(1)})}),
       Process(W(0), {WaitOn("waiting for all members to join", 19, {kCoordinator})})},
      kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].kind, Kind::kAbsent);
  EXPECT_EQ(causes[0].text,
            "nobody is there as worker-1: worker 1 has not joined; wait for it: coordinator, "
            "worker-0");
}

TEST(WaitGraph, ACycleIsNamedAsOneInItsOrder) {
  const auto causes = FindRootCauses({Process(W(0), {WaitOn("the push", 9, {S(1)})}),
                                      Process(S(1), {WaitOn("the verdict", 9, {S(0)})}),
                                      Process(S(0), {WaitOn("Complete", 9, {W(0)})}),
                                      Process(W(1), {WaitOn("a pull", 5, {S(1)})})},
                                     kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].kind, Kind::kCycle);
  EXPECT_EQ(causes[0].places, (std::vector<Place>{S(0), W(0), S(1)}));
  EXPECT_EQ(causes[0].waiting, std::vector<Place>{W(1)});
  EXPECT_EQ(causes[0].text,
            "these wait for each other: shard-0 (Complete) -> worker-0 (the push) -> shard-1 (the "
            "verdict) -> shard-0; waits for it: worker-1");
}

TEST(WaitGraph, ACycleOutOfWhichAWaitLeadsIsNotTheRoot) {
  const auto causes =
      FindRootCauses({Process(W(0), {WaitOn("the push", 9, {S(0)})}),
                      Process(S(0), {WaitOn("Complete", 9, {W(0), W(1)})}), Silent(W(1), 9)},
                     kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].places, std::vector<Place>{W(1)});
}

TEST(WaitGraph, OneThatIsWaitedForAndWaitsForNothingIsNamed) {
  const auto causes =
      FindRootCauses({Process(S(0)), Process(W(0), {WaitOn("the verdict", 9, {S(0)})})}, kLong);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].kind, Kind::kIdle);
}

TEST(WaitGraph, OneThatCannotBeAskedButLivesIsBlamedAfterOthers) {
  AskedProcess own = Process(W(1));
  own.answer = Answer::kCannot;
  own.error = "it has no server";
  const auto causes = FindRootCauses({Process(S(0), {WaitOn("Complete", 30, {W(0), W(1)})}),
                                      Process(W(0), {WaitOn("forward and backward", 30, {})}), own},
                                     kLong);
  ASSERT_EQ(causes.size(), 2u);
  EXPECT_EQ(causes[0].places, std::vector<Place>{W(0)});
  EXPECT_EQ(causes[1].kind, Kind::kUntold);
}

TEST(WaitGraph, EveryJobThatIsStuckHasARootAndEveryRootWaitsForNobodyElse) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<AskedProcess> processes;
    std::set<Place> present;
    bool stuck = false;
    for (const Place& place : {kCoordinator, S(0), S(1), W(0), W(1), W(2)}) {
      if (random() % 8 == 0) continue;  // has not joined
      present.insert(place);
      if (random() % 8 == 0) {
        processes.push_back(Silent(place, 3));
        stuck = true;
        continue;
      }
      AskedProcess process = Process(place);
      for (uint64_t waits = random() % 3; waits > 0; --waits) {
        std::vector<Place> on;
        for (uint64_t n = random() % 3; n > 0; --n) {
          on.push_back(random() % 2 == 0 ? S(random() % 2) : W(random() % 3));
        }
        const double seconds = static_cast<double>(random() % 4);
        stuck = stuck || seconds >= 2;
        process.waits.push_back(WaitOn("w", seconds, on));
      }
      processes.push_back(std::move(process));
    }
    const auto causes = FindRootCauses(processes, kLong);
    ASSERT_EQ(causes.empty(), !stuck) << "round " << round;
    for (const RootCause& cause : causes) {
      ASSERT_FALSE(cause.places.empty());
      ASSERT_FALSE(cause.text.empty());
      ASSERT_EQ(cause.kind == Kind::kAbsent, present.count(cause.places[0]) == 0);
      for (const Place& waiting : cause.waiting) {
        for (const Place& root : cause.places) ASSERT_NE(waiting, root);
      }
    }
  }
}

}  // namespace
}  // namespace parley
