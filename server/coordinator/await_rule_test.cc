#include "server/coordinator/await_rule.h"

#include <gtest/gtest.h>

#include <string>

#include "common/memory_file_system.h"

namespace parley {
namespace {

constexpr absl::Duration kLiveness = absl::Seconds(10);

class AwaitRuleTest : public testing::Test {
 protected:
  AwaitRuleTest() { EXPECT_TRUE(directory_.Prepare().ok()); }

  absl::StatusOr<JobLog> Await() {
    return AwaitRule(files_, directory_, "digits", kLiveness,
                     {[this] { return now_; },
                      [this](absl::Time until) {
                        now_ = until;
                        return !stop_;
                      },
                      [this](const std::string& address) -> absl::StatusOr<GetStatusReply> {
                        if (address != living_) return absl::UnavailableError("refused");
                        GetStatusReply reply;
                        reply.set_job("digits");
                        reply.set_generation(100);
                        return reply;
                      }});
  }

  MemoryFileSystem files_;
  JobDirectory directory_{files_, "/job"};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  const absl::Time start_ = now_;
  std::string living_;
  bool stop_ = false;
};

TEST_F(AwaitRuleTest, TheFirstCoordinatorDoesNotWaitItsSuccessorWaitsForALiveness) {
  auto first = Await();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(now_, start_);
  ASSERT_TRUE(first->Take("127.0.0.1:1", {}, now_).ok());
  ASSERT_TRUE(directory_.WriteAddress("127.0.0.1:1").ok());
  auto second = Await();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GE(now_ - start_, kLiveness);
  EXPECT_EQ(*second->Take("127.0.0.1:2", {}, now_), 2u);
  EXPECT_TRUE(absl::IsAborted(first->Append({}, now_)));
}

TEST_F(AwaitRuleTest, WhereAJobHasEndedInOrderNobodyWaits) {
  auto first = Await();
  CoordinatorState over;
  over.set_over(true);
  ASSERT_TRUE(first->Take("127.0.0.1:1", over, now_).ok());
  auto second = Await();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(now_, start_);
  EXPECT_EQ(*second->Take("127.0.0.1:2", {}, now_), 2u);
}

TEST_F(AwaitRuleTest, ANewcomerIsRefusedByALivingOneAndWritesNothing) {
  auto first = Await();
  ASSERT_TRUE(first->Take("127.0.0.1:1", {}, now_).ok());
  living_ = "127.0.0.1:1";
  files_.BeforeEach([](const std::string& operation) {
    EXPECT_TRUE(operation == "List" || operation == "Open" || operation == "Exists") << operation;
  });
  EXPECT_TRUE(absl::IsAlreadyExists(Await().status()));
  files_.BeforeEach(nullptr);
  EXPECT_TRUE(first->Append({}, now_).ok());
}

TEST_F(AwaitRuleTest, OfTwoThatHaveWaitedOneGetsTheRule) {
  ASSERT_TRUE(Await()->Take("127.0.0.1:1", {}, now_).ok());
  auto second = Await();
  auto third = Await();
  EXPECT_TRUE(third->Take("127.0.0.1:3", {}, now_).ok());
  EXPECT_TRUE(absl::IsAborted(second->Take("127.0.0.1:2", {}, now_).status()));
}

TEST_F(AwaitRuleTest, ASignalEndsTheWait) {
  ASSERT_TRUE(Await()->Take("127.0.0.1:1", {}, now_).ok());
  stop_ = true;
  EXPECT_TRUE(absl::IsCancelled(Await().status()));
}

TEST_F(AwaitRuleTest, ADamagedLogIsNotTakenOver) {
  ASSERT_TRUE(Await()->Take("127.0.0.1:1", {}, now_).ok());
  const std::string record = directory_.log_directory() + "/00000000000000000001.record";
  ASSERT_TRUE(WriteFileAtomically(files_, record, "x").ok());
  EXPECT_TRUE(absl::IsDataLoss(Await().status()));
}

}  // namespace
}  // namespace parley
