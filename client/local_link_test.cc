// What a shard on this machine can do wrong to a worker, and how it can go. (What goes right is in
// server/parameter_shard/local_door_test.cc and the contract suites.)
#include "client/local_link.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/testing/scripted_door.h"
#include "common/clock/steady_now.h"
#include "common/clock/testing/becomes.h"
#include "common/shared_memory/memory_segment.h"

namespace parley {
namespace {

absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

// A pull, and its end.
struct Pulled {
  absl::Notification over;
  int answers = 0;
  absl::StatusOr<TensorPull> reply;
};

class LocalLinkTest : public ::testing::Test {
 protected:
  LocalLinkTest() : link_(*LocalLink::Open(door_.address(), &heap_)) {
    door_.Accept();
    EXPECT_TRUE(door_.Next(Soon()).has_value()) << "a hello";
    EXPECT_TRUE(door_.Say(ReplyTo(1)));
    EXPECT_TRUE(Becomes([this] { return link_->ready(); }));
  }
  ~LocalLinkTest() override {
    if (link_ != nullptr) link_->Join();
  }

  static LocalReply ReplyTo(uint64_t call) {
    LocalReply reply;
    reply.set_call(call);
    return reply;
  }
  // With a slice of so many bytes from there on in segment 7, which has a page.
  static LocalReply Showing(uint64_t call, uint64_t offset, uint64_t bytes) {
    LocalReply reply = ReplyTo(call);
    reply.mutable_pull()->set_version(1);
    LocalSlice& slice = *reply.add_slices();
    slice.set_dtype(F32);
    slice.set_segment(7);
    slice.set_offset(offset);
    slice.set_bytes(bytes);
    slice.set_count_offset(0);
    return reply;
  }

  std::shared_ptr<Pulled> Pull(absl::Time deadline = Soon()) {
    auto pulled = std::make_shared<Pulled>();
    Done<TensorPull> done = [pulled](absl::StatusOr<TensorPull> reply) {
      if (++pulled->answers > 1) return;
      pulled->reply = std::move(reply);
      pulled->over.Notify();
    };
    EXPECT_TRUE(link_->Pull({}, deadline, done));
    return pulled;
  }
  // Its number.
  uint64_t Asked() {
    const std::optional<LocalRequest> request = door_.Next(Soon());
    EXPECT_TRUE(request.has_value());
    return request.has_value() ? request->call() : 0;
  }
  static absl::StatusCode EndOf(Pulled& pulled) {
    if (!pulled.over.WaitForNotificationWithTimeout(absl::Seconds(30))) {
      ADD_FAILURE() << "a call does not end";
      return absl::StatusCode::kOk;
    }
    return pulled.reply.status().code();
  }
  // Whether it has ended, and takes no more calls: these go another way.
  bool IsOver() {
    if (!Becomes([this] { return link_->ended(); }) || link_->ready()) return false;
    Done<TensorPull> done = [](const absl::StatusOr<TensorPull>&) {};
    return !link_->Pull({}, Soon(), done) && done != nullptr;
  }

  SegmentHeap heap_{0};
  ScriptedDoor door_;
  std::shared_ptr<LocalLink> link_;
};

TEST_F(LocalLinkTest, WhatIsShownIsReadWhereItLies) {
  const auto segment = *MemorySegment::Create(4096);
  segment->data()[8] = std::byte{'x'};
  const auto pulled = Pull();
  LocalReply reply = Showing(Asked(), 8, 4);
  reply.add_segments(7);
  ASSERT_TRUE(door_.Say(reply, {segment->fd().get()}));
  ASSERT_EQ(EndOf(*pulled), absl::StatusCode::kOk) << pulled->reply.status();
  const TensorSlice& slice = pulled->reply->slices.at(0);
  EXPECT_EQ(slice.bytes.pieces().at(0).data()[0], std::byte{'x'});
  EXPECT_TRUE(slice.loan->Stands());
  EXPECT_TRUE(link_->ready());
}

// What nobody asked for would be kept as an answer that nobody reads, to be told to the shard: for
// as long as it goes on.
TEST_F(LocalLinkTest, AnAnswerToACallThatNobodyMadeEndsTheLink) {
  const auto pulled = Pull();
  ASSERT_TRUE(door_.Say(ReplyTo(Asked() + 1)));
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
}

TEST_F(LocalLinkTest, ASecondAnswerEndsTheLink) {
  const auto first = Pull();
  const auto second = Pull();
  const LocalReply reply = ReplyTo(Asked());
  ASSERT_TRUE(door_.Say(reply));
  EXPECT_EQ(EndOf(*first), absl::StatusCode::kOk);
  ASSERT_TRUE(door_.Say(reply));
  EXPECT_EQ(EndOf(*second), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
  EXPECT_EQ(first->answers, 1);
}

TEST_F(LocalLinkTest, AnAnswerAfterTheDeadlineIsOnlySaidToHaveBeenRead) {
  const auto late = Pull(SteadyNow() + absl::Milliseconds(20));
  const uint64_t call = Asked();
  EXPECT_EQ(EndOf(*late), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(door_.Say(ReplyTo(call)));
  // Said with the next request that is made after it has come.
  std::vector<uint64_t> read;
  for (int i = 0; i < 2; ++i) {
    const auto next = Pull();
    const std::optional<LocalRequest> request = door_.Next(Soon());
    ASSERT_TRUE(request.has_value());
    read.insert(read.end(), request->read().begin(), request->read().end());
    ASSERT_TRUE(door_.Say(ReplyTo(request->call())));
    EXPECT_EQ(EndOf(*next), absl::StatusCode::kOk) << "the link stands";
  }
  ASSERT_FALSE(read.empty());
  EXPECT_EQ(read.front(), call);
  EXPECT_EQ(late->answers, 1);
}

TEST_F(LocalLinkTest, APlaceOutsideOfItsSegmentEndsTheLink) {
  const auto segment = *MemorySegment::Create(4096);
  const auto pulled = Pull();
  LocalReply reply = Showing(Asked(), 4092, 8);
  reply.add_segments(7);
  ASSERT_TRUE(door_.Say(reply, {segment->fd().get()}));
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
}

TEST_F(LocalLinkTest, APlaceInASegmentThatWasNeverShownEndsTheLink) {
  const auto pulled = Pull();
  ASSERT_TRUE(door_.Say(Showing(Asked(), 0, 8)));
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
}

TEST_F(LocalLinkTest, AShardThatGoesWhileAPullIsParkedEndsIt) {
  const auto pulled = Pull();
  Asked();
  door_.HangUp();
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
}

TEST_F(LocalLinkTest, AShardThatGoesBeforeItHasHeardOfAPullEndsIt) {
  const auto pulled = Pull();
  door_.HangUp();  // a reset
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
}

TEST_F(LocalLinkTest, AMessageThatIsTooLargeEndsTheLink) {
  const auto pulled = Pull();
  Asked();
  door_.SayTooMuch();
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
}

// The link's thread does not see it then.
TEST_F(LocalLinkTest, AMessageThatIsTooLargeEndsTheLinkWhenAVisitorReceivesIt) {
  const auto pulled = Pull();
  Asked();
  EXPECT_FALSE(link_->Visit()) << "nothing has come; the thread stands back from now on";
  door_.SayTooMuch();
  for (int i = 0; i < 100; ++i) link_->Visit();
  link_->Leave();
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
}

TEST_F(LocalLinkTest, ClosingItEndsWhatIsOpen) {
  const auto pulled = Pull();
  link_->Join();
  EXPECT_EQ(EndOf(*pulled), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsOver());
  link_.reset();
}

TEST(LocalLinkHelloTest, AShardThatDoesNotLetItInIsNeverReady) {
  SegmentHeap heap(0);
  ScriptedDoor door;
  const auto link = *LocalLink::Open(door.address(), &heap);
  door.Accept();
  ASSERT_TRUE(door.Next(Soon()).has_value());
  LocalReply refusal;
  refusal.set_call(1);
  refusal.set_code(static_cast<int>(absl::StatusCode::kPermissionDenied));
  ASSERT_TRUE(door.Say(refusal));
  EXPECT_TRUE(Becomes([&] { return link->ended(); }));
  EXPECT_FALSE(link->ready());
  link->Join();
}

}  // namespace
}  // namespace parley
