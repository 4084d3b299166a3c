#include "client/service_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "client/manual_timers.h"
#include "client/testing/quiet_membership.h"
#include "client/testing/refusing_peers.h"

namespace parley {
namespace {

using testing::ElementsAre;

// Keeps the pushes until the test answers.
class HeldShard final : public RefusingShard {
 public:
  void Push(const PushRequest& request, absl::Time, Done<PushReply> done) override {
    headers.push_back(request.header());
    held.push_back(std::move(done));
  }
  std::vector<uint64_t> job_epochs() const {
    std::vector<uint64_t> epochs;
    for (const CallHeader& header : headers) epochs.push_back(header.job_epoch());
    return epochs;
  }
  std::vector<CallHeader> headers;
  std::vector<Done<PushReply>> held;
};

class OneShard final : public Connector {
 public:
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return nullptr;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string&) override { return shard; }
  const std::shared_ptr<HeldShard> shard = std::make_shared<HeldShard>();
};

class ServiceCallsTest : public testing::Test {
 protected:
  // A call that nobody answers holds the client that it is made with.
  ~ServiceCallsTest() override { shard_.held.clear(); }

  std::unique_ptr<ServiceCalls> MakeCalls(uint64_t job_epoch) {
    return MakeCalls(job_epoch, membership_);
  }
  std::unique_ptr<ServiceCalls> MakeCalls(uint64_t job_epoch, Membership& membership) {
    auto calls =
        std::make_unique<ServiceCalls>(ServiceCalls::Options{absl::Minutes(1), absl::Seconds(10)},
                                       connector_, membership, queue_, runtime_->MakeTimers(), 3);
    calls->Connect({"h:1"}, job_epoch);
    return calls;
  }
  void Push(ServiceCalls& calls) {
    calls.Push(0, std::make_shared<TensorPush>(),
               [this](const absl::StatusOr<PushReply>& reply) { ends_.push_back(reply.ok()); });
  }
  void RunAnswers() {
    (void)queue_->RunUntil([] { return false; }, absl::InfinitePast(), [] {}, absl::Seconds(1));
  }

  ManualTimers timers_;
  const std::shared_ptr<ManualRuntime> runtime_ = std::make_shared<ManualRuntime>(&timers_);
  const std::shared_ptr<AnswerQueue> queue_ = std::make_shared<AnswerQueue>(runtime_);
  QuietMembership membership_;
  OneShard connector_;
  HeldShard& shard_ = *connector_.shard;
  std::vector<bool> ends_;
};

TEST_F(ServiceCallsTest, EveryAttemptIsOfTheEpochThatItServesWhateverIsKnownOfLaterOnes) {
  const auto calls = MakeCalls(1);
  membership_.now.set_job_epoch(1);
  membership_.now.set_view_epoch(3);
  Push(*calls);
  membership_.now.set_job_epoch(2);
  membership_.now.set_view_epoch(4);
  shard_.held[0](absl::UnavailableError("gone"));
  ASSERT_TRUE(timers_.RunNext());
  Push(*calls);
  EXPECT_THAT(shard_.job_epochs(), ElementsAre(1, 1, 1));
  EXPECT_EQ(shard_.headers[1].view_epoch(), 4) << "views may change within an epoch";
  Push(*MakeCalls(2));
  EXPECT_THAT(shard_.job_epochs(), ElementsAre(1, 1, 1, 2));
}

TEST_F(ServiceCallsTest, AnAnswerThatComesAfterItHasGoneIsDropped) {
  auto calls = MakeCalls(1);
  Push(*calls);
  Push(*calls);
  shard_.held[0](PushReply());  // waits for the training thread
  calls.reset();
  shard_.held[1](PushReply());
  RunAnswers();
  EXPECT_THAT(ends_, ElementsAre());
}

TEST_F(ServiceCallsTest, AnAttemptThatFailsAfterTheDeadlineWhenAllHasGoneAsksNobody) {
  auto membership = std::make_unique<QuietMembership>();
  auto calls = MakeCalls(1, *membership);
  Push(*calls);
  timers_.Advance(absl::Minutes(2));
  timers_.Stop();
  calls.reset();
  membership.reset();
  shard_.held[0](absl::UnavailableError("gone"));  // asan sees whom it asks
  RunAnswers();
  EXPECT_THAT(ends_, ElementsAre());
}

TEST_F(ServiceCallsTest, AnOrdinalWithoutAShardHasNothingThatIsUnsent) {
  auto calls = MakeCalls(1);
  calls->Connect({"", "h:1"}, 1);
  calls->DropUnsent();
}

}  // namespace
}  // namespace parley
