#include "client/reduce/group_door.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/local_socket.h"

namespace parley {
namespace {

// One that no other process of this machine has.
std::string Address(int number) { return absl::StrCat("test:", ::getpid(), ":", number); }

GroupComposition Composition(uint64_t number, uint64_t job_epoch = 1) {
  GroupComposition group;
  group.set_job("digits");
  group.set_job_epoch(job_epoch);
  group.set_composition(number);
  return group;
}

absl::StatusOr<GroupSegments> Ask(const std::string& address, const GroupComposition& group,
                                  uint32_t rank = 1) {
  return GroupDoor::Ask(address, group, 0, rank, SteadyNow() + absl::Seconds(10));
}

TEST(GroupDoorTest, WhoAsksForTheSameCompositionIsShownTheSegments) {
  const auto door = *GroupDoor::Open(Address(1));
  const auto words = *MemorySegment::Create(100);
  const auto gradients = *MemorySegment::Create(100);
  std::memcpy(words->data(), "words", 6);
  std::memcpy(gradients->data(), "gradients", 10);
  EXPECT_EQ(Ask(Address(1), Composition(4)).status().code(), absl::StatusCode::kUnavailable);
  door->Show(Composition(4), 1, {words, gradients, words});
  const auto seen = Ask(Address(1), Composition(4));
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_STREQ(reinterpret_cast<const char*>(seen->words->data()), "words");
  EXPECT_STREQ(reinterpret_cast<const char*>(seen->gradients->data()), "gradients");
}

TEST(GroupDoorTest, WhoIsOfAnotherCompositionAsksAgain) {
  const auto door = *GroupDoor::Open(Address(2));
  const auto segment = *MemorySegment::Create(100);
  door->Show(Composition(4), 1, {segment, segment, segment});
  for (const auto& group : {Composition(3), Composition(5), Composition(4, /*job_epoch=*/2)}) {
    EXPECT_EQ(Ask(Address(2), group).status().code(), absl::StatusCode::kUnavailable);
  }
  door->Show(Composition(5), 1, {segment, segment, segment});
  EXPECT_TRUE(Ask(Address(2), Composition(5)).ok());
  EXPECT_EQ(Ask(Address(2), Composition(4)).status().code(), absl::StatusCode::kUnavailable);
  door->Hide();
  EXPECT_EQ(Ask(Address(2), Composition(5)).status().code(), absl::StatusCode::kUnavailable);
}

TEST(GroupDoorTest, NobodyThereAndAnotherRankAreToldApart) {
  EXPECT_EQ(Ask(Address(3), Composition(1)).status().code(), absl::StatusCode::kUnavailable);
  const auto door = *GroupDoor::Open(Address(3));
  const auto segment = *MemorySegment::Create(100);
  door->Show(Composition(1), 2, {segment, segment, segment});
  EXPECT_EQ(Ask(Address(3), Composition(1), 1).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(GroupDoor::Open(Address(3)).status().code(), absl::StatusCode::kUnavailable)
      << "the name is taken";
}

TEST(GroupDoorTest, OneThatSaysNothingOrNonsenseHarmsNobody) {
  const auto door = *GroupDoor::Open(Address(4));
  const auto segment = *MemorySegment::Create(100);
  door->Show(Composition(1), 1, {segment, segment, segment});
  const auto silent = *LocalSocket::Connect(absl::StrCat("parley-group ", Address(4)));
  const auto wrong = *LocalSocket::Connect(absl::StrCat("parley-group ", Address(4)));
  ASSERT_TRUE(wrong->Send("\xff\xff\xff\xff").ok());
  EXPECT_FALSE(wrong->Receive(SteadyNow() + absl::Seconds(10)).ok());
  EXPECT_TRUE(Ask(Address(4), Composition(1)).ok());
}

TEST(GroupDoorTest, OneThatDoesNotAnswerIsNotWaitedForForEver) {
  const auto listener = *LocalListener::Listen(absl::StrCat("parley-group ", Address(5)));
  const auto asked =
      GroupDoor::Ask(Address(5), Composition(1), 0, 1, SteadyNow() + absl::Milliseconds(20));
  EXPECT_EQ(asked.status().code(), absl::StatusCode::kDeadlineExceeded) << asked.status();
}

}  // namespace
}  // namespace parley
