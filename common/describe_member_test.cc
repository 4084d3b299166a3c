#include "common/describe_member.h"

#include <gtest/gtest.h>

namespace parley {
namespace {

TEST(DescribeMemberTest, SaysWhereAMemberIsAsFarAsItIsKnown) {
  Member member;
  member.set_role(WORKER);
  member.set_ordinal(1);
  member.set_pid(123);
  EXPECT_EQ(Describe(member), "worker 1 (pid 123)");
  member.set_host("node7");
  EXPECT_EQ(Describe(member), "worker 1 on node7 (pid 123)");
  member.set_address("127.0.0.1:4567");
  EXPECT_EQ(Describe(member), "worker 1 at 127.0.0.1:4567 (pid 123)");
}

}  // namespace
}  // namespace parley
