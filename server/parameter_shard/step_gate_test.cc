#include "server/parameter_shard/step_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace parley {
namespace {

CompleteRequest Completion(uint32_t contributor, double weight = 1, uint32_t part = 0) {
  CompleteRequest request;
  request.set_step(1);
  request.set_part(part);
  request.mutable_share()->set_contributor(contributor);
  request.mutable_share()->set_weight(weight);
  return request;
}

StepGate Opened(StepGate::Options options, StepGate::Contributors contributors) {
  StepGate gate(options);
  gate.Open(1, std::move(contributors));
  return gate;
}

TEST(StepGateTest, AContributorIsCompleteWhenAllItsPartsAre) {
  StepGate gate = Opened({}, {{0, 2}, {1, 1}});
  EXPECT_FALSE(gate.Complete(Completion(0, 1, 1))->verdict.has_value());
  EXPECT_FALSE(gate.Complete(Completion(1))->verdict.has_value());
  EXPECT_EQ(gate.MissingParts().size(), 1u);
  auto output = gate.Complete(Completion(0, 0.5, 0));
  ASSERT_TRUE(output->verdict.has_value());
  EXPECT_EQ(output->verdict->total_weight(), 1.5);  // part 0's, once
}

TEST(StepGateTest, SharesAreByOrdinalWhateverTheOrderOfCompletion) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}, {2, 1}});
  ASSERT_TRUE(gate.Complete(Completion(2)).ok());
  ASSERT_TRUE(gate.Complete(Completion(0)).ok());
  const auto output = gate.Complete(Completion(1));
  ASSERT_EQ(output->verdict->shares_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(output->verdict->shares(i).contributor(), static_cast<uint32_t>(i));
  }
}

TEST(StepGateTest, AnElasticRateIsThatOfTheShareOfAFullStep) {
  StepGate gate = Opened({.reference_weight = 4}, {{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  for (const uint32_t contributor : {0, 1, 2}) {
    ASSERT_TRUE(gate.Complete(Completion(contributor)).ok());
  }
  EXPECT_EQ(gate.Complete(Completion(3))->verdict->rate_scale(), 1);
  gate.Open(2, {{0, 1}, {1, 1}, {2, 1}});
  for (const uint32_t contributor : {0, 1}) {
    ASSERT_TRUE(gate.Complete(Completion(contributor)).ok());
  }
  EXPECT_EQ(gate.Complete(Completion(2, 0.5))->verdict->rate_scale(), 2.5 / 4);
}

TEST(StepGateTest, WithBackupsTheFirstCompleteOnesCount) {
  StepGate gate = Opened({.backup = 1}, {{0, 1}, {1, 1}, {2, 1}});
  ASSERT_TRUE(gate.Complete(Completion(2)).ok());
  const auto output = gate.Complete(Completion(0));
  ASSERT_TRUE(output->verdict.has_value());
  EXPECT_EQ(output->verdict->shares(0).contributor(), 0u);
  EXPECT_EQ(output->verdict->shares(1).contributor(), 2u);
}

TEST(StepGateTest, WithBackupsThoseWithoutDataDoNotFillTheQuorum) {
  StepGate gate({.backup = 1});
  gate.Open(1, {{0, 1}, {1, 1}, {2, 1}}, /*without_data=*/{1, 2});
  EXPECT_FALSE(gate.Complete(Completion(1, 0))->verdict.has_value());
  EXPECT_FALSE(gate.Complete(Completion(2, 0))->verdict.has_value());
  EXPECT_EQ(gate.Complete(Completion(0))->verdict->shares_size(), 3);

  gate.Open(2, {{0, 1}, {1, 1}, {2, 1}}, /*without_data=*/{1, 2});
  EXPECT_FALSE(gate.Complete(Completion(0))->verdict.has_value());  // N - b at least
  EXPECT_TRUE(gate.Complete(Completion(2, 0))->verdict.has_value());
}

TEST(StepGateTest, IfTheOnesWithDataGoTheOthersEndTheStep) {
  StepGate gate({.backup = 1});
  gate.Open(1, {{0, 1}, {1, 1}, {2, 1}}, /*without_data=*/{1, 2});
  ASSERT_TRUE(gate.Complete(Completion(1, 0)).ok());
  const auto output = gate.Change({{.contributor = 0}});
  ASSERT_TRUE(output.verdict.has_value());
  EXPECT_EQ(output.verdict->shares_size(), 1);
}

// Contributors complete, go and are slow in any order: the verdict counts as many as it must, those
// that were complete first.
TEST(StepGateTest, TheQuorumIsTheFirstOnesThatMatter) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint32_t all = 1 + random() % 7;
    const auto backup = static_cast<uint32_t>(random() % all);
    StepGate gate({.backup = backup});
    StepGate::Contributors contributors;
    std::set<uint32_t> without_data;
    for (uint32_t i = 0; i < all; ++i) {
      contributors[i] = 1;
      if (random() % 3 == 0) without_data.insert(i);
    }
    gate.Open(1, contributors, without_data);
    std::set<uint32_t> in;
    std::set<uint32_t> complete;
    for (const auto& [i, parts] : contributors) in.insert(i);
    std::vector<uint32_t> order(in.begin(), in.end());
    std::shuffle(order.begin(), order.end(), random);
    std::optional<Verdict> verdict;
    for (const uint32_t contributor : order) {
      ASSERT_FALSE(verdict.has_value());
      if (random() % 5 == 0) {
        in.erase(contributor);
        verdict = gate.Change({{.contributor = contributor}}).verdict;
      } else {
        complete.insert(contributor);
        verdict = gate.Complete(Completion(contributor))->verdict;
      }
      const size_t least = in.size() > backup ? in.size() - backup : 1;
      std::set<uint32_t> with_data = in;
      std::set<uint32_t> complete_with_data = complete;
      for (const uint32_t none : without_data) {
        with_data.erase(none);
        complete_with_data.erase(none);
      }
      const bool quorum = !complete.empty() && complete.size() >= least &&
                          complete_with_data.size() >= std::min(with_data.size(), least);
      ASSERT_EQ(verdict.has_value(), quorum || in.empty());
      if (verdict.has_value()) break;
    }
    ASSERT_TRUE(verdict.has_value());
    ASSERT_NE(verdict->outcome(), Verdict::RETRY);
    std::set<uint32_t> counted;
    for (const Share& share : verdict->shares()) counted.insert(share.contributor());
    ASSERT_EQ(counted, complete);
    ASSERT_EQ(verdict->total_weight(), complete.size());
  }
}

TEST(StepGateTest, ImpossibleCompletionsAreRefused) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}});
  EXPECT_TRUE(absl::IsInvalidArgument(gate.Complete(Completion(7)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(gate.Complete(Completion(0, 1, 3)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(gate.Complete(Completion(0, -1)).status()));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(absl::IsInvalidArgument(gate.Complete(Completion(0, nan)).status()));
  ASSERT_TRUE(gate.Complete(Completion(0)).ok());
  CompleteRequest other_epoch = Completion(1);
  other_epoch.set_data_epoch(3);
  EXPECT_TRUE(absl::IsInvalidArgument(gate.Complete(other_epoch).status()));
}

TEST(StepGateTest, ClosingWaitsForTheNormsOfAllShards) {
  ClusterView view;
  StepGate gate = Opened({.skip_nonfinite = true, .shards = 2}, {{0, 1}});
  auto output = gate.Complete(Completion(0));
  ASSERT_TRUE(output->close.has_value());
  EXPECT_FALSE(output->verdict.has_value());
  CloseReply finite;
  finite.set_finite(true);
  CloseReply infinite;
  EXPECT_FALSE(gate.OnCloseReply(1, 1, 0, finite, view).verdict.has_value());
  EXPECT_FALSE(gate.OnCloseReply(1, 1, 0, finite, view).verdict.has_value());    // again
  EXPECT_FALSE(gate.OnCloseReply(0, 1, 9, infinite, view).verdict.has_value());  // another attempt
  EXPECT_EQ(gate.OnCloseReply(0, 1, 0, infinite, view).verdict->outcome(), Verdict::SKIP);
}

TEST(StepGateTest, ADepartureWhileClosingChangesNothing) {
  ClusterView view;
  StepGate gate = Opened({.clip = true, .clip_norm = 1}, {{0, 1}, {1, 1}});
  ASSERT_TRUE(gate.Complete(Completion(0)).ok());
  ASSERT_TRUE(gate.Complete(Completion(1))->close.has_value());
  const auto output = gate.Change(
      {{.contributor = 1, .left_something = true}, {.contributor = 0, .left_something = true}});
  EXPECT_FALSE(output.verdict.has_value());
  EXPECT_FALSE(gate.TakesPart(1));
  EXPECT_EQ(gate.OnCloseReply(0, 1, 0, CloseReply(), view).verdict->shares_size(), 2);
}

TEST(StepGateTest, AnIncompleteOneThatDepartsAndIsInASumRaisesTheAttempt) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}});
  ASSERT_TRUE(gate.Complete(Completion(0)).ok());
  const auto output = gate.Change({{.contributor = 1, .left_something = true}});
  ASSERT_TRUE(output.verdict.has_value());
  EXPECT_EQ(output.verdict->outcome(), Verdict::RETRY);
  EXPECT_EQ(output.verdict->attempt(), 0u);
  EXPECT_EQ(gate.attempt(), 1u);
  EXPECT_EQ(gate.MissingParts().size(), 1u);  // contributor 0 has to complete again
}

TEST(StepGateTest, TheLastMissingOneThatSentNothingDecidesByDeparting) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}});
  ASSERT_TRUE(gate.Complete(Completion(0)).ok());
  const auto output = gate.Change({{.contributor = 1}});
  EXPECT_EQ(output.verdict->outcome(), Verdict::APPLY);
  EXPECT_EQ(output.verdict->shares_size(), 1);
}

TEST(StepGateTest, AnAwaitedOneIsMissingUntilItsSuccessorCompletes) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}});
  ASSERT_TRUE(gate.Complete(Completion(0)).ok());
  EXPECT_FALSE(gate.Change({{.contributor = 1, .awaited = true}}).verdict.has_value());
  EXPECT_TRUE(gate.TakesPart(1));
  EXPECT_EQ(gate.MissingParts().size(), 1u);
  EXPECT_EQ(gate.Complete(Completion(1))->verdict->shares_size(), 2);
}

TEST(StepGateTest, AnAwaitedOneThatIsNotAwaitedAnyMoreIsOutOfTheStep) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}});
  ASSERT_TRUE(gate.Complete(Completion(0)).ok());
  EXPECT_FALSE(gate.Change({{.contributor = 1, .awaited = true}}).verdict.has_value());
  EXPECT_EQ(gate.Change({{.contributor = 1}}).verdict->shares_size(), 1);
}

TEST(StepGateTest, ACompleteOneThatDepartedCountsButItsSuccessorHasNoPartInTheAttempt) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}});
  ASSERT_TRUE(gate.Complete(Completion(1)).ok());
  EXPECT_TRUE(gate.TakesPart(1));
  EXPECT_FALSE(gate.Change({{.contributor = 1, .awaited = true}}).verdict.has_value());
  EXPECT_FALSE(gate.TakesPart(1));
  EXPECT_EQ(gate.Complete(Completion(0))->verdict->shares_size(), 2);
}

TEST(StepGateTest, AfterARetryTheCompleteOnesThatDepartedAreAwaitedOrOut) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  for (uint32_t complete : {0, 1, 2}) ASSERT_TRUE(gate.Complete(Completion(complete)).ok());
  gate.Change({{.contributor = 1, .awaited = true}});
  gate.Change({{.contributor = 2}});
  const auto output = gate.Change({{.contributor = 3, .left_something = true}});
  EXPECT_EQ(output.verdict->outcome(), Verdict::RETRY);
  EXPECT_EQ(gate.contributors(), (StepGate::Contributors{{0, 1}, {1, 1}}));
  EXPECT_TRUE(gate.TakesPart(1));
}

TEST(StepGateTest, OneThatWentForGoodIsNotTakenBackByTheRetry) {
  StepGate gate = Opened({}, {{0, 1}, {1, 1}, {2, 1}});
  ASSERT_TRUE(gate.Complete(Completion(1)).ok());
  gate.Change({{.contributor = 1}});
  gate.Change({{.contributor = 1, .awaited = true}});  // somebody has come in its place
  gate.Change({{.contributor = 2, .left_something = true}});
  EXPECT_EQ(gate.contributors(), (StepGate::Contributors{{0, 1}}));
}

TEST(StepGateTest, AReplacedMemberOfAGroupMakesTheOthersCompleteAgain) {
  StepGate gate = Opened({}, {{0, 2}});
  ASSERT_TRUE(gate.Complete(Completion(0, 1, 0)).ok());
  const auto output = gate.Change({{.contributor = 0, .awaited = true}});
  EXPECT_EQ(output.verdict->outcome(), Verdict::RETRY);
  EXPECT_EQ(gate.MissingParts().size(), 2u);
}

TEST(StepGateTest, AStepThatAllHaveLeftIsSkipped) {
  for (const bool one_complete : {false, true}) {
    StepGate gate = Opened({}, {{0, 1}, {1, 1}});
    if (one_complete) {
      ASSERT_TRUE(gate.Complete(Completion(0)).ok());
    }
    const auto output =
        gate.Change({{.contributor = 0}, {.contributor = 1, .left_something = one_complete}});
    ASSERT_TRUE(output.verdict.has_value());
    EXPECT_EQ(output.verdict->outcome(), Verdict::SKIP);
    EXPECT_EQ(output.verdict->shares_size(), 0);
    EXPECT_EQ(output.verdict->attempt(), 0u);
  }
}

TEST(StepGateTest, NoneNamesThePartsWhereTheyAreNotAllPart0) {
  StepGate gate = Opened({}, {{0, 2}, {1, 1}});
  CompleteRequest second = Completion(0, 1, 1);
  second.add_none(5);
  CompleteRequest only = Completion(1);
  only.add_none(6);
  ASSERT_TRUE(gate.Complete(second).ok());
  ASSERT_TRUE(gate.Complete(only).ok());
  const auto output = gate.Complete(Completion(0));
  ASSERT_EQ(output->verdict->none_size(), 2);
  EXPECT_EQ(output->verdict->none(0).slice(), 5u);
  EXPECT_EQ(output->verdict->none(0).parts(0), 1u);
  EXPECT_EQ(output->verdict->none(1).contributors(0), 1u);
  EXPECT_EQ(output->verdict->none(1).parts_size(), 0);
}

}  // namespace
}  // namespace parley
