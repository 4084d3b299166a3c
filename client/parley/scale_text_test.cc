#include "client/parley/scale_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace parley {
namespace {

using testing::HasSubstr;
using testing::Not;

SetWorkersReply Reply(uint32_t before, uint32_t here) {
  SetWorkersReply reply;
  reply.set_before(before);
  reply.set_here(here);
  return reply;
}

TEST(ScaleTextTest, MoreWorkersAreToBeStartedAndItSaysHow) {
  const std::string text = ScaleText(Reply(2, 2), 4, "file:/runs/a/coordinator.address");
  EXPECT_THAT(text, HasSubstr("workers: 4, before: 2; here and staying: 2\n"));
  EXPECT_THAT(text, HasSubstr("deploy/slurm/submit --workers=2 --out=/runs/a\n"));
  EXPECT_THAT(text, HasSubstr("parley-worker --job=/runs/a/job.textproto "
                              "--coordinator=file:/runs/a/coordinator.address\n"));
  EXPECT_THAT(ScaleText(Reply(2, 1), 4, "node1:4000"), HasSubstr("--workers=3 --out=OUT\n"));
}

TEST(ScaleTextTest, TheCommandsSurviveSpaces) {
  const std::string text = ScaleText(Reply(2, 2), 4, "file:/my runs/it's/coordinator.address");
  EXPECT_THAT(text, HasSubstr("submit --workers=2 '--out=/my runs/it'\\''s'\n"));
  EXPECT_THAT(text, HasSubstr("parley-worker '--job=/my runs/it'\\''s/job.textproto' "
                              "'--coordinator=file:/my runs/it'\\''s/coordinator.address'\n"));
}

TEST(ScaleTextTest, FewerWorkersGoByThemselves) {
  const std::string text = ScaleText(Reply(4, 3), 3, "node1:4000");
  EXPECT_THAT(text, HasSubstr("those with the highest numbers go"));
  EXPECT_THAT(text, Not(HasSubstr("to start")));
  // One is missing that was lost before.
  EXPECT_THAT(ScaleText(Reply(4, 2), 3, "node1:4000"), HasSubstr("--workers=1"));
}

TEST(ScaleTextTest, MembersAreNamedAsStatusDoes) {
  for (const auto& [name, role] : {std::pair("worker-12", WORKER), std::pair("shard-12", SHARD),
                                   std::pair("stage-12", STAGE)}) {
    const auto request = DrainOf(name);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->role(), role);
    EXPECT_EQ(request->ordinal(), 12U);
  }
  for (const char* wrong : {"", "worker", "worker-", "worker-x", "12", "coordinator", "-1",
                            "worker-3.5", "worker-99999999999"}) {
    const auto request = DrainOf(wrong);
    EXPECT_TRUE(absl::IsInvalidArgument(request.status())) << wrong;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr("worker-3"));
  }
}

}  // namespace
}  // namespace parley
