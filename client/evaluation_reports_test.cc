#include "client/evaluation_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/forwarding_coordinator.h"
#include "client/manual_timers.h"

namespace parley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Keeps the reports until the test answers.
class HeldCoordinator final : public ForwardingCoordinator<HeldCoordinator> {
 public:
  void ReportEvaluation(const ReportEvaluationRequest& request, absl::Time,
                        Done<ReportEvaluationReply> done) override {
    held.emplace_back(request.part().version(), std::move(done));
  }
  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply>, const Request&, absl::Time, Done<Reply>) {}

  std::vector<uint64_t> versions() const {
    std::vector<uint64_t> versions;
    for (const auto& [version, done] : held) versions.push_back(version);
    return versions;
  }

  std::vector<std::pair<uint64_t, Done<ReportEvaluationReply>>> held;
};

class MembershipOf final : public Membership {
 public:
  explicit MembershipOf(std::shared_ptr<CoordinatorClient> coordinator)
      : coordinator_(std::move(coordinator)) {}

  uint64_t member() const override { return 9; }
  uint32_t ordinal() const override { return 0; }
  CallHeader header() const override { return {}; }
  std::shared_ptr<CoordinatorClient> coordinator() const override { return coordinator_; }
  void Progress(uint64_t, uint64_t) override {}
  FirstCause Fail(const std::string&, bool) override { return {}; }
  void Preempt(const std::string&, absl::Duration) override {}
  std::optional<FirstCause> failure() const override { return std::nullopt; }
  void Leave() override {}

 private:
  const std::shared_ptr<CoordinatorClient> coordinator_;
};

class NoConnector final : public Connector {
 public:
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return nullptr;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string&) override { return nullptr; }
};

class EvaluationReportsTest : public testing::Test {
 protected:
  static Evaluation Part(uint64_t version) {
    Evaluation part;
    part.set_version(version);
    return part;
  }

  void Answer(const absl::Status& status) {
    auto held = std::exchange(coordinator_->held, {});
    for (auto& [version, done] : held) {
      if (status.ok()) {
        done(ReportEvaluationReply());
      } else {
        done(status);
      }
    }
    RunAnswers();
  }
  // What is posted runs on the training thread.
  void RunAnswers() {
    (void)queue_->RunUntil([] { return false; }, absl::InfinitePast(), [] {}, absl::Seconds(1));
  }

  const std::shared_ptr<HeldCoordinator> coordinator_ = std::make_shared<HeldCoordinator>();
  MembershipOf membership_{coordinator_};
  NoConnector connector_;
  ManualTimers manual_;
  ManualRuntime runtime_{&manual_};
  const std::shared_ptr<AnswerQueue> queue_ =
      std::make_shared<AnswerQueue>(std::make_shared<ManualRuntime>(&manual_));
  ServiceCalls calls_{{absl::Minutes(1), absl::Seconds(10)},
                      connector_,
                      membership_,
                      queue_,
                      runtime_.MakeTimers(),
                      3};
  EvaluationReports reports_;
};

TEST_F(EvaluationReportsTest, AReportIsOpenUntilItIsAcknowledged) {
  reports_.Send(calls_, 0, Part(20));
  reports_.Send(calls_, 0, Part(40));
  EXPECT_EQ(reports_.open(), 2u);
  EXPECT_THAT(coordinator_->versions(), ElementsAre(20, 40));
  Answer(absl::OkStatus());
  EXPECT_EQ(reports_.open(), 0u);
  EXPECT_EQ(reports_.error(), absl::OkStatus());
}

TEST_F(EvaluationReportsTest, ARefusedOneIsToldAndStaysOpen) {
  reports_.Send(calls_, 0, Part(20));
  Answer(absl::InvalidArgumentError("more samples than there are"));
  EXPECT_EQ(reports_.open(), 1u);
  EXPECT_EQ(reports_.error().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EvaluationReportsTest, WhoHasJoinedAnewInItsPlaceReportsAgainWhatIsOpen) {
  reports_.Send(calls_, 0, Part(20));
  Answer(absl::OkStatus());
  reports_.Send(calls_, 0, Part(40));
  auto former = std::exchange(coordinator_->held, {});
  reports_.SendAgain(calls_, 0);
  EXPECT_THAT(coordinator_->versions(), ElementsAre(40));
  // What the former membership still hears concerns nobody.
  former.front().second(absl::AbortedError("fenced"));
  EXPECT_EQ(reports_.open(), 1u);
  Answer(absl::OkStatus());
  EXPECT_EQ(reports_.open(), 0u);
  EXPECT_EQ(reports_.error(), absl::OkStatus());
}

TEST_F(EvaluationReportsTest, PartsOfVersionsAfterTheOneThatTheJobWentBackToAreForgotten) {
  for (const uint64_t version : {20, 40, 60}) reports_.Send(calls_, 0, Part(version));
  const auto former = std::exchange(coordinator_->held, {});
  reports_.RollBack(40);
  EXPECT_EQ(reports_.open(), 2u);
  reports_.SendAgain(calls_, 0);
  EXPECT_THAT(coordinator_->versions(), ElementsAre(20, 40));
  // What was reported in the former epoch is answered.
  for (const auto& [version, done] : former) done(absl::AbortedError("rolled back"));
  RunAnswers();
  EXPECT_EQ(reports_.error(), absl::OkStatus());
  // The same version is made again, and evaluated again.
  reports_.Send(calls_, 0, Part(60));
  EXPECT_THAT(coordinator_->versions(), ElementsAre(20, 40, 60));
  Answer(absl::OkStatus());
  EXPECT_EQ(reports_.open(), 0u);
}

TEST_F(EvaluationReportsTest, InAnotherPlaceNothingOfItIsReported) {
  reports_.Send(calls_, 0, Part(20));
  coordinator_->held.clear();
  reports_.SendAgain(calls_, 1);
  EXPECT_THAT(coordinator_->versions(), IsEmpty());
  EXPECT_EQ(reports_.open(), 0u);
}

}  // namespace
}  // namespace parley
