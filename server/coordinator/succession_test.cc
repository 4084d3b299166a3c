#include "server/coordinator/succession.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace parley {
namespace {

constexpr absl::Duration kLiveness = absl::Seconds(10);
const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

using Kind = Succession::Kind;

GetStatusReply Reply(const std::string& job, uint64_t generation) {
  GetStatusReply reply;
  reply.set_job(job);
  reply.set_generation(generation);
  return reply;
}

// Runs a Succession in virtual time until it is decided.
class SuccessionTest : public testing::Test {
 protected:
  Succession::Next Run() {
    Succession succession("digits", kLiveness, now_);
    for (int i = 0; i < 10'000; ++i) {
      const Succession::Next next = succession.Decide(now_);
      switch (next.kind) {
        case Kind::kLook:
          ++looks_;
          last_look_ = now_;
          succession.Looked(sighting_(), now_);
          break;
        case Kind::kAsk:
          asked_.push_back(next.address);
          now_ += call_time_;
          succession.Answered(answer_(next.address), now_);
          break;
        case Kind::kWait:
          EXPECT_GT(next.until, now_);
          EXPECT_LE(next.until, now_ + kLiveness);
          now_ = next.until;
          break;
        default:
          EXPECT_EQ(succession.Decide(now_).kind, next.kind) << "it is final";
          return next;
      }
    }
    ADD_FAILURE() << "it never ends";
    return {};
  }

  absl::Duration Elapsed() const { return now_ - kStart; }

  absl::Time now_ = kStart;
  absl::Duration call_time_ = absl::Milliseconds(1);
  std::function<Succession::Sighting()> sighting_ = [] { return Succession::Sighting(); };
  std::function<absl::StatusOr<GetStatusReply>(const std::string&)> answer_ =
      [](const std::string&) { return absl::UnavailableError("connection refused"); };
  int looks_ = 0;
  absl::Time last_look_;
  std::vector<std::string> asked_;
};

TEST_F(SuccessionTest, WithoutATraceOfAnotherTheFirstOneStartsAtOnce) {
  EXPECT_EQ(Run().kind, Kind::kTake);
  EXPECT_EQ(Elapsed(), absl::ZeroDuration());
}

TEST_F(SuccessionTest, ALivingOneAtTheAddressFileRefusesANewcomer) {
  sighting_ = [] { return Succession::Sighting{5, 2, "a:1", "b:1"}; };
  answer_ = [](const std::string& address) -> absl::StatusOr<GetStatusReply> {
    if (address == "b:1") return Reply("digits", 2);
    return absl::UnavailableError("connection refused");
  };
  const auto next = Run();
  EXPECT_EQ(next.kind, Kind::kRefused);
  EXPECT_EQ(next.status.code(), absl::StatusCode::kAlreadyExists);
  for (const char* needle : {"b:1", "generation 2", "'digits'", "--out"}) {
    EXPECT_NE(next.status.message().find(needle), absl::string_view::npos) << next.status;
  }
  EXPECT_LT(Elapsed(), absl::Seconds(1));
}

TEST_F(SuccessionTest, ALivingOneIsFoundByItsRecordToo) {
  sighting_ = [] { return Succession::Sighting{5, 2, "a:1", ""}; };
  answer_ = [](const std::string&) { return Reply("digits", 2); };
  EXPECT_EQ(Run().kind, Kind::kRefused);
}

TEST_F(SuccessionTest, ADeadOnesPlaceIsTakenAfterALivenessWithoutAnswerOrRecord) {
  sighting_ = [] { return Succession::Sighting{5, 2, "a:1", "a:1"}; };
  EXPECT_EQ(Run().kind, Kind::kTake);
  EXPECT_GE(last_look_ - kStart, kLiveness) << "the last look is not before";
  EXPECT_LT(Elapsed(), kLiveness + absl::Seconds(1));
  EXPECT_GE(looks_, 4) << "it looks now and then";
  EXPECT_EQ(asked_.size(), static_cast<size_t>(looks_)) << "and asks each time, each address once";
}

TEST_F(SuccessionTest, AnAddressFileAloneIsATraceToo) {
  sighting_ = [] { return Succession::Sighting{0, 0, "", "a:1"}; };
  EXPECT_EQ(Run().kind, Kind::kTake);
  EXPECT_GE(Elapsed(), kLiveness);
}

TEST_F(SuccessionTest, AnAnswerInTheLastRoundStillCounts) {
  sighting_ = [] { return Succession::Sighting{5, 2, "a:1", "a:1"}; };
  answer_ = [this](const std::string&) -> absl::StatusOr<GetStatusReply> {
    if (now_ - kStart >= kLiveness) return Reply("digits", 2);
    return absl::DeadlineExceededError("no answer");
  };
  EXPECT_EQ(Run().kind, Kind::kRefused);
}

TEST_F(SuccessionTest, ANewRecordBeginsTheWaitAnew) {
  sighting_ = [this] {
    return Succession::Sighting{now_ - kStart < absl::Seconds(9) ? 5u : 6u, 2, "a:1", "a:1"};
  };
  EXPECT_EQ(Run().kind, Kind::kTake);
  EXPECT_GE(Elapsed(), absl::Seconds(9) + kLiveness);
  EXPECT_LT(Elapsed(), absl::Seconds(9) + 2 * kLiveness);
}

TEST_F(SuccessionTest, ANewcomerThatWasFasterIsAskedAtItsOwnAddress) {
  sighting_ = [this] {
    return now_ - kStart < absl::Seconds(5) ? Succession::Sighting{5, 2, "a:1", "a:1"}
                                            : Succession::Sighting{6, 3, "c:1", "a:1"};
  };
  answer_ = [](const std::string& address) -> absl::StatusOr<GetStatusReply> {
    if (address == "c:1") return Reply("digits", 3);
    return absl::UnavailableError("connection refused");
  };
  const auto next = Run();
  EXPECT_EQ(next.kind, Kind::kRefused);
  EXPECT_NE(next.status.message().find("generation 3"), absl::string_view::npos) << next.status;
  EXPECT_LT(Elapsed(), kLiveness);
}

TEST_F(SuccessionTest, AnotherJobsCoordinatorAtTheAddressIsNoAnswer) {
  sighting_ = [] { return Succession::Sighting{5, 2, "a:1", "a:1"}; };
  answer_ = [](const std::string&) { return Reply("letters", 7); };
  EXPECT_EQ(Run().kind, Kind::kTake);
  EXPECT_GE(Elapsed(), kLiveness);
}

// One that was cut off from the others, and has not noticed yet, does not keep its successor's
// successor away.
TEST_F(SuccessionTest, AnOvertakenOnesAnswerIsNoAnswer) {
  sighting_ = [] { return Succession::Sighting{5, 3, "b:1", "a:1"}; };
  answer_ = [](const std::string& address) -> absl::StatusOr<GetStatusReply> {
    if (address == "a:1") return Reply("digits", 2);
    return absl::UnavailableError("connection refused");
  };
  EXPECT_EQ(Run().kind, Kind::kTake);
}

TEST_F(SuccessionTest, OneThatWritesButDoesNotAnswerIsNotWaitedForForEver) {
  sighting_ = [this] {
    const auto seconds = static_cast<uint64_t>(absl::ToInt64Seconds(now_ - kStart));
    return Succession::Sighting{5 + seconds, 2, "a:1", "a:1"};
  };
  call_time_ = absl::Seconds(2);
  const auto next = Run();
  EXPECT_EQ(next.kind, Kind::kRefused);
  EXPECT_EQ(next.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(next.status.message().find("a:1"), absl::string_view::npos) << next.status;
  EXPECT_GE(Elapsed(), Succession::kPatience * kLiveness);
  EXPECT_LT(Elapsed(), (Succession::kPatience + 1) * kLiveness);
}

TEST_F(SuccessionTest, AClockThatIsSetBackDoesNotLengthenTheWaitBeyondALiveness) {
  sighting_ = [] { return Succession::Sighting{5, 2, "a:1", "a:1"}; };
  answer_ = [this](const std::string&) {
    if (looks_ == 2) now_ = kStart - absl::Hours(1);
    return absl::UnavailableError("connection refused");
  };
  EXPECT_EQ(Run().kind, Kind::kTake);
  EXPECT_GE(now_, kStart - absl::Hours(1) + kLiveness);
  EXPECT_LT(now_, kStart - absl::Hours(1) + 2 * kLiveness);
}

}  // namespace
}  // namespace parley
