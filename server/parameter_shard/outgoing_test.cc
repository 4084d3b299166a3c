#include "server/parameter_shard/outgoing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/manual_timers.h"
#include "server/parameter_shard/fake_peers.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kAttempt = absl::Seconds(10);

// Shard 0 leads a step of three shards; the other two are fakes, and so is the coordinator.
class OutgoingTest : public ::testing::Test {
 protected:
  OutgoingTest() : shard_(ClippingJob(), {}), routing_(*Routing::Make(view_, 0)) {
    outgoing_ = MakeOutgoing();
  }
  ~OutgoingTest() override { outgoing_->Stop(); }

  std::shared_ptr<Outgoing> MakeOutgoing() {
    Outgoing::Options options;
    options.shard = &shard_;
    options.connector = &peers_;
    options.timers = &timers_;
    options.patience = kPatience;
    options.attempt_timeout = kAttempt;
    options.on_error = [this](const std::string& error) { errors_.push_back(error); };
    options.seed = 5;
    return Outgoing::Make(std::move(options));
  }

  static JobConfig ClippingJob() {
    JobConfig job = MeanJob();
    job.mutable_optimizer()->set_clip_norm(1);
    return job;
  }

  FakeShard& peer(uint32_t ordinal) {
    return peers_.shard(routing_->FindShard(ordinal)->address());
  }
  void SendClose(uint32_t shard, uint64_t step) {
    CloseRequest request;
    request.set_step(step);
    outgoing_->Send({{shard, request}}, *routing_);
  }
  void SendDecide(uint32_t shard, uint64_t step) {
    DecideRequest request;
    request.mutable_verdict()->set_step(step);
    outgoing_->Send({{shard, request}}, *routing_);
  }
  static Verdict VerdictOfStep(uint64_t step) {
    Verdict verdict;
    verdict.set_step(step);
    return verdict;
  }
  void Report(uint64_t step) {
    JobProgress progress;
    progress.set_step(step);
    outgoing_->Report({VerdictOfStep(step)}, progress);
  }
  void KnowCoordinator() {
    outgoing_->SetCoordinator(peers_.coordinator, [this] {
      CallHeader header;
      header.set_view_epoch(view_epoch_);
      return header;
    });
  }
  std::vector<uint64_t> ReportedSteps() {
    std::vector<uint64_t> steps;
    for (const Verdict& verdict : peers_.coordinator->verdicts.front().verdicts()) {
      steps.push_back(verdict.step());
    }
    return steps;
  }

  // The core, joined and with its view, has begun to close step 1.
  void CloseAStepOfTheCore() {
    const absl::Time now = timers_.Now();
    shard_.Start(0);
    ASSERT_EQ(shard_.SetView(view_, now), absl::OkStatus());
    SliceStart zeros;
    const std::string bytes = BytesOf({0, 0});
    zeros.values = bytes;
    ASSERT_EQ(shard_.StartSlice(0, zeros, now), absl::OkStatus());
    PushRequest push;
    *push.mutable_header() = HeaderOf(view_, 1);
    push.set_step(1);
    SliceData& data = *push.add_slices();
    data.set_dtype(F32);
    data.set_data(BytesOf({3, 0}));
    shard_.Push(push, {now}, [](const absl::StatusOr<PushReply>& reply) {
      ASSERT_EQ(reply.status(), absl::OkStatus());
    });
    CompleteRequest complete;
    *complete.mutable_header() = HeaderOf(view_, 1);
    complete.set_step(1);
    complete.mutable_share()->set_weight(1);
    shard_.Complete(complete, {now, now + absl::Hours(1)},
                    [](const absl::StatusOr<CompleteReply>&) {});
    outgoing_->Send(shard_.TakeNews().outbox, *routing_);
    ASSERT_EQ(peer(1).closes.size(), 1u);
    ASSERT_EQ(peer(2).closes.size(), 1u);
  }
  static CloseReply NormsOf(uint32_t slice, double square) {
    CloseReply reply;
    reply.set_finite(true);
    SliceNorms& norms = *reply.add_norms();
    norms.set_slice(slice);
    norms.add_blocks(square);
    return reply;
  }

  const ClusterView view_ = MakeView({.tensors = {{"a", 2}, {"b", 2}, {"c", 2}}, .shards = 3});
  ManualTimers timers_;
  FakeConnector peers_;
  LockedShard shard_;
  const std::shared_ptr<const Routing> routing_;
  std::vector<std::string> errors_;
  uint64_t view_epoch_ = 1;
  std::shared_ptr<Outgoing> outgoing_;
};

TEST_F(OutgoingTest, AShardGetsItsMessagesOneAtATimeAndInOrder) {
  SendClose(1, 1);
  SendDecide(1, 1);
  SendClose(1, 2);
  EXPECT_EQ(peer(1).closes.size(), 1u);
  EXPECT_EQ(peer(1).closes.front().step(), 1u);
  EXPECT_TRUE(peer(1).decides.empty());
  peer(1).closes.Answer();
  EXPECT_EQ(peer(1).decides.size(), 1u);
  EXPECT_TRUE(peer(1).closes.empty());
  peer(1).decides.Answer();
  ASSERT_EQ(peer(1).closes.size(), 1u);
  EXPECT_EQ(peer(1).closes.front().step(), 2u);
  EXPECT_FALSE(outgoing_->idle());
  peer(1).closes.Answer();
  EXPECT_TRUE(outgoing_->idle());
  EXPECT_EQ(peers_.connections, 1);
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_F(OutgoingTest, OnlyTheNewestAdvanceThatIsNotOnItsWayIsKept) {
  for (const uint64_t floor : {1, 2, 3}) {
    AdvanceRequest request;
    request.set_floor(floor);
    outgoing_->Send({{1, request}}, *routing_);
  }
  ASSERT_EQ(peer(1).advances.size(), 1u);
  EXPECT_EQ(peer(1).advances.front().floor(), 1u);
  peer(1).advances.Answer();
  ASSERT_EQ(peer(1).advances.size(), 1u);
  EXPECT_EQ(peer(1).advances.front().floor(), 3u);
  peer(1).advances.Answer();
  EXPECT_TRUE(outgoing_->idle());
}

TEST_F(OutgoingTest, AShardThatDoesNotAnswerHoldsUpNobodyElse) {
  SendDecide(1, 1);
  SendDecide(2, 1);
  SendDecide(2, 2);
  peer(2).decides.Answer();
  ASSERT_EQ(peer(2).decides.size(), 1u);
  EXPECT_EQ(peer(2).decides.front().verdict().step(), 2u);
  EXPECT_EQ(peer(1).decides.size(), 1u);
}

TEST_F(OutgoingTest, AMessageToAShardThatTheViewDoesNotNameGoesNowhere) {
  SendDecide(7, 1);
  EXPECT_EQ(peers_.connections, 0);
  EXPECT_TRUE(outgoing_->idle());
}

TEST_F(OutgoingTest, ANewCoordinatorIsToldWhereTheJobIsAlsoIfAllVerdictsWereToldBefore) {
  KnowCoordinator();
  outgoing_->ReportAgain();
  EXPECT_TRUE(peers_.coordinator->verdicts.empty()) << "nothing is decided yet";
  Report(1);
  peers_.coordinator->verdicts.Answer();
  outgoing_->ReportAgain();
  ASSERT_EQ(peers_.coordinator->verdicts.size(), 1u);
  EXPECT_THAT(ReportedSteps(), IsEmpty());
  EXPECT_EQ(peers_.coordinator->verdicts.front().progress().step(), 1u);
  // The new one comes while a report to it is on its way, which the old one may have answered.
  outgoing_->ReportAgain();
  Report(2);
  peers_.coordinator->verdicts.Answer();
  ASSERT_EQ(peers_.coordinator->verdicts.size(), 1u);
  EXPECT_THAT(ReportedSteps(), ElementsAre(2));
  peers_.coordinator->verdicts.Answer();
  EXPECT_TRUE(peers_.coordinator->verdicts.empty());
}

TEST_F(OutgoingTest, WhatMayPassIsSentAgainAndTheNextMessageWaitsForIt) {
  for (StatusCode code :
       {StatusCode::kUnavailable, StatusCode::kDeadlineExceeded, StatusCode::kCancelled,
        StatusCode::kUnknown, StatusCode::kResourceExhausted, StatusCode::kFailedPrecondition,
        StatusCode::kAborted}) {  // the job has gone back, or this shard is fenced: its state tells
    SendDecide(1, 1);
    SendDecide(1, 2);
    for (int attempt = 0; attempt < 3; ++attempt) {
      ASSERT_EQ(peer(1).decides.size(), 1u) << code;
      EXPECT_EQ(peer(1).decides.front().verdict().step(), 1u) << code;
      peer(1).decides.Answer(absl::Status(code, "not now"));
      EXPECT_TRUE(peer(1).decides.empty()) << "not before it has waited: " << code;
      timers_.Advance(absl::Seconds(1));
    }
    peer(1).decides.Answer();
    EXPECT_EQ(peer(1).decides.front().verdict().step(), 2u) << code;
    peer(1).decides.Answer();
    EXPECT_TRUE(outgoing_->idle());
  }
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_F(OutgoingTest, WhatIsRefusedForGoodIsNotSentAgainAndTheErrorSaysByWhom) {
  const std::vector<StatusCode> codes = {
      StatusCode::kInvalidArgument, StatusCode::kNotFound, StatusCode::kPermissionDenied,
      StatusCode::kUnauthenticated, StatusCode::kInternal, StatusCode::kDataLoss,
      StatusCode::kUnimplemented};
  for (StatusCode code : codes) {
    errors_.clear();
    outgoing_ = MakeOutgoing();
    SendDecide(1, 1);
    SendDecide(1, 2);
    peer(1).decides.Answer(absl::Status(code, "never"));
    timers_.Advance(2 * kPatience);
    EXPECT_TRUE(peer(1).decides.empty()) << code;
    EXPECT_THAT(errors_, ElementsAre("shard 1 at 10.0.0.1:1 (pid 0) refused the step leader: "
                                     "never"))
        << code;
  }
}

TEST_F(OutgoingTest, EachAttemptHasItsDeadlineAndAllTogetherThePatience) {
  const absl::Time sent = timers_.Now();
  SendClose(1, 8);
  int attempts = 0;
  while (!peer(1).closes.empty()) {
    ++attempts;
    const absl::Time deadline = peer(1).closes.deadline();
    EXPECT_EQ(deadline, std::min(timers_.Now() + kAttempt, sent + kPatience));
    timers_.Advance(deadline - timers_.Now());
    peer(1).closes.Answer(absl::DeadlineExceededError("silence"));
    timers_.RunNext();  // the wait before the next one, if there is one
  }
  EXPECT_GE(attempts, 6);
  EXPECT_LE(timers_.Now(), sent + kPatience);
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(errors_[0], HasSubstr("closing step 8 on shard 1 at 10.0.0.1:1"));
  EXPECT_THAT(errors_[0], HasSubstr("silence"));
}

TEST_F(OutgoingTest, AnswersToCloseGoToTheShardWhichThenDecides) {
  CloseAStepOfTheCore();
  peer(1).closes.Answer(NormsOf(1, 16));
  EXPECT_TRUE(shard_.TakeNews().verdicts.empty());
  peer(2).closes.Answer(NormsOf(2, 0));
  const LockedShard::News news = shard_.TakeNews();
  ASSERT_EQ(news.verdicts.size(), 1u);
  EXPECT_EQ(news.verdicts[0].gradient_norm(), 5);
  EXPECT_EQ(news.outbox.size(), 2u);
}

TEST_F(OutgoingTest, AfterStopAnswersAreIgnored) {
  CloseAStepOfTheCore();
  SendDecide(1, 9);
  peer(1).closes.Answer(NormsOf(1, 16));
  outgoing_->Stop();
  peer(2).closes.Answer(NormsOf(2, 0));
  peer(1).decides.Answer(absl::InternalError("too late"));
  EXPECT_EQ(shard_.TakeNews().version, 0u);
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_F(OutgoingTest, AfterStopNothingIsSent) {
  KnowCoordinator();
  Report(1);
  Report(2);
  SendDecide(1, 1);
  SendDecide(2, 1);
  SendDecide(2, 2);
  // One message is about to be tried again, others wait for theirs to be answered.
  peer(1).decides.Answer(absl::UnavailableError("gone"));
  outgoing_->Stop();
  peer(2).decides.Answer();
  peers_.coordinator->verdicts.Answer(absl::UnavailableError("gone"));
  SendClose(1, 2);
  Report(3);
  timers_.Advance(2 * kPatience);
  EXPECT_TRUE(peer(1).decides.empty());
  EXPECT_TRUE(peer(1).closes.empty());
  EXPECT_TRUE(peer(2).decides.empty());
  EXPECT_TRUE(peers_.coordinator->verdicts.empty());
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_F(OutgoingTest, VerdictsWaitForTheCoordinatorAndGoInOrder) {
  Report(1);
  Report(2);
  EXPECT_FALSE(outgoing_->idle());
  KnowCoordinator();
  EXPECT_THAT(ReportedSteps(), ElementsAre(1, 2));
  EXPECT_EQ(peers_.coordinator->verdicts.front().progress().step(), 2u);
  peers_.coordinator->verdicts.Answer();
  EXPECT_TRUE(outgoing_->idle());
}

TEST_F(OutgoingTest, VerdictsThatGatherWhileOneIsReportedGoTogether) {
  KnowCoordinator();
  Report(1);
  Report(2);
  Report(3);
  ASSERT_EQ(peers_.coordinator->verdicts.size(), 1u);
  EXPECT_THAT(ReportedSteps(), ElementsAre(1));
  peers_.coordinator->verdicts.Answer(absl::UnavailableError("busy"));
  timers_.Advance(absl::Seconds(1));
  EXPECT_THAT(ReportedSteps(), ElementsAre(1)) << "what was sent is repeated as it was";
  EXPECT_EQ(peers_.coordinator->verdicts.front().progress().step(), 1u);
  outgoing_->Report({}, JobProgress());  // nothing new
  peers_.coordinator->verdicts.Answer();
  ASSERT_EQ(peers_.coordinator->verdicts.size(), 1u);
  EXPECT_THAT(ReportedSteps(), ElementsAre(2, 3));
  EXPECT_EQ(peers_.coordinator->verdicts.front().progress().step(), 3u);
}

TEST_F(OutgoingTest, OfVerdictsThatACoordinatorMissesTheNewestAreKeptAndTheProgressSaysTheRest) {
  const uint64_t steps = 5 * Outgoing::kVerdicts;
  for (uint64_t step = 1; step <= steps; ++step) Report(step);
  KnowCoordinator();
  const ReportVerdictsRequest& report = peers_.coordinator->verdicts.front();
  EXPECT_EQ(report.verdicts_size(), static_cast<int>(Outgoing::kVerdicts));
  EXPECT_EQ(report.verdicts(0).step(), steps - Outgoing::kVerdicts + 1);
  EXPECT_EQ(report.progress().step(), steps);
}

// So large as one of many contributors is.
Verdict LargeVerdict(uint64_t step, size_t bytes) {
  Verdict verdict;
  verdict.set_step(step);
  // Three bytes each.
  for (size_t i = 0; i < bytes / 3; ++i) verdict.add_contributors(1 << 20);
  return verdict;
}

// Takes reports until none comes, as a coordinator whose messages have a limit; their steps.
std::vector<uint64_t> TakeAll(Inbox<ReportVerdictsRequest, ReportVerdictsReply>& reports) {
  constexpr size_t kMostMessageBytes = 64 << 20;
  std::vector<uint64_t> steps;
  while (!reports.empty()) {
    const ReportVerdictsRequest report = reports.front();
    if (report.ByteSizeLong() > kMostMessageBytes) {
      reports.Answer(absl::ResourceExhaustedError("the message is too large"));
      continue;
    }
    EXPECT_LE(report.ByteSizeLong(), Outgoing::kReportBytes + 100);
    for (const Verdict& verdict : report.verdicts()) steps.push_back(verdict.step());
    EXPECT_GE(report.progress().step(), steps.back());
    reports.Answer();
  }
  return steps;
}

TEST_F(OutgoingTest, WhatACoordinatorMissesIsToldInAsManyReportsAsItsMessagesTake) {
  const uint64_t steps = 600;
  for (uint64_t step = 1; step <= steps; ++step) {
    JobProgress progress;
    progress.set_step(step);
    outgoing_->Report({LargeVerdict(step, 128 << 10)}, progress);
  }
  KnowCoordinator();
  const ReportVerdictsRequest& first = peers_.coordinator->verdicts.front();
  EXPECT_EQ(first.progress().step(), first.verdicts(first.verdicts_size() - 1).step())
      << "where the job was then";
  const std::vector<uint64_t> told = TakeAll(peers_.coordinator->verdicts);
  ASSERT_EQ(told.size(), steps);
  for (uint64_t step = 1; step <= steps; ++step) EXPECT_EQ(told[step - 1], step);
  EXPECT_THAT(errors_, IsEmpty());
}

TEST_F(OutgoingTest, WhatCameTogetherIsToldTogetherWithWhereTheJobIsAfterIt) {
  JobProgress progress;
  progress.set_step(1);
  outgoing_->Report({LargeVerdict(1, 3 << 20)}, progress);
  progress.set_step(3);
  outgoing_->Report({LargeVerdict(2, 1 << 20), LargeVerdict(3, 1 << 10)}, progress);
  KnowCoordinator();
  EXPECT_THAT(ReportedSteps(), ElementsAre(1)) << "two do not fit in, and one says nothing alone";
  EXPECT_EQ(peers_.coordinator->verdicts.front().progress().step(), 1u);
  peers_.coordinator->verdicts.Answer();
  EXPECT_THAT(ReportedSteps(), ElementsAre(2, 3));
  EXPECT_EQ(peers_.coordinator->verdicts.front().progress().step(), 3u);
  peers_.coordinator->verdicts.Answer();
  EXPECT_TRUE(outgoing_->idle());
}

TEST_F(OutgoingTest, OfMoreThanAReportHoldsTheNewestAreToldAndOneHoweverLargeItIs) {
  JobProgress progress;
  progress.set_step(3);
  outgoing_->Report({LargeVerdict(1, 3 << 20), LargeVerdict(2, 2 << 20), LargeVerdict(3, 1 << 20)},
                    progress);
  progress.set_step(5);
  outgoing_->Report({LargeVerdict(4, 1 << 20), LargeVerdict(5, 5 << 20)}, progress);
  KnowCoordinator();
  EXPECT_THAT(ReportedSteps(), ElementsAre(2, 3));
  peers_.coordinator->verdicts.Answer();
  EXPECT_THAT(ReportedSteps(), ElementsAre(5));
  peers_.coordinator->verdicts.Answer();
  EXPECT_TRUE(outgoing_->idle());
}

TEST_F(OutgoingTest, AShardThatIsLeftFarBehindIsAnErrorAndItsQueueDoesNotGrow) {
  uint64_t step = 0;
  // One without slices, which no worker waits for, may be slow for many short steps.
  while (step < 20 * Outgoing::kQueue) SendDecide(1, ++step);
  EXPECT_THAT(errors_, IsEmpty());
  const uint64_t few = step;
  while (errors_.empty() && step < 1000 * few) SendDecide(1, ++step);
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(errors_[0], HasSubstr("messages of the step leader"));
  EXPECT_GT(step, 100 * few) << "of some bytes each";
}

TEST_F(OutgoingTest, ItTellsWhichAnswersAreMissingAndSinceWhen) {
  KnowCoordinator();
  SendClose(1, 7);
  SendDecide(1, 7);
  timers_.Advance(absl::Seconds(3));
  SendDecide(2, 7);
  Report(7);
  const std::vector<Wait> waits = outgoing_->Waits(timers_.Now());
  ASSERT_EQ(waits.size(), 3u);
  EXPECT_EQ(waits[0].on(0).role(), SHARD);
  EXPECT_EQ(waits[0].on(0).ordinal(), 1u);
  EXPECT_EQ(waits[0].seconds(), 3);
  EXPECT_EQ(waits[0].seconds_left(), 57);
  EXPECT_EQ(waits[0].step(), 7u);
  EXPECT_THAT(waits[0].what(), HasSubstr("the closing of step 7; 1 more behind it"));
  EXPECT_THAT(waits[1].what(), HasSubstr("the verdict of step 7"));
  EXPECT_EQ(waits[2].on(0).role(), COORDINATOR);
  outgoing_->Stop();
  EXPECT_THAT(outgoing_->Waits(timers_.Now()), IsEmpty());
}

TEST_F(OutgoingTest, ItTellsOfAShardThatHasNotHeardHowFarAllAre) {
  AdvanceRequest advance;
  advance.set_floor(4);
  outgoing_->Send({{1, advance}}, *routing_);
  const std::vector<Wait> waits = outgoing_->Waits(timers_.Now());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].on(0).ordinal(), 1u);
  EXPECT_THAT(waits[0].what(), HasSubstr("the news that all have completed clock 4; 0 more"));
}

TEST_F(OutgoingTest, AReportThatIsRepeatedCarriesTheNewestView) {
  KnowCoordinator();
  Report(1);
  EXPECT_EQ(peers_.coordinator->verdicts.front().header().view_epoch(), 1u);
  view_epoch_ = 2;
  peers_.coordinator->verdicts.Answer(absl::FailedPreconditionError("an old view"));
  timers_.Advance(absl::Seconds(1));
  EXPECT_EQ(peers_.coordinator->verdicts.front().header().view_epoch(), 2u);
}

TEST_F(OutgoingTest, ARefusedVerdictIsAnErrorAndNoFurtherOnesAreReported) {
  KnowCoordinator();
  Report(1);
  Report(2);
  peers_.coordinator->verdicts.Answer(absl::InvalidArgumentError("step 1 is no news"));
  EXPECT_THAT(errors_, ElementsAre("the coordinator refused a verdict: step 1 is no news"));
  EXPECT_TRUE(peers_.coordinator->verdicts.empty());
}

}  // namespace
}  // namespace parley::testing
