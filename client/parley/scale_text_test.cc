#include "client/parley/scale_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace parley {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

SetWorkersReply Reply(uint32_t before, uint32_t here) {
  SetWorkersReply reply;
  reply.set_before(before);
  reply.set_here(here);
  return reply;
}

// A job that `submit`, or `parley run`, has started in this directory.
WorkerStart In(const std::string& directory) {
  return {.coordinator = "file:" + directory + "/coordinator.address",
          .directory = directory,
          .has_job_file = true};
}

TEST(ScaleTextTest, MoreWorkersAreToBeStartedAndItSaysHow) {
  const std::string text = ScaleText(Reply(2, 2), 4, In("/runs/a"));
  EXPECT_THAT(text, HasSubstr("workers: 4, before: 2; here and staying: 2\n"));
  EXPECT_THAT(text, HasSubstr("deploy/slurm/submit --workers=2 --out=/runs/a\n"));
  EXPECT_THAT(text, EndsWith("  parley-worker --job=/runs/a/job.textproto "
                             "--coordinator=file:/runs/a/coordinator.address\n"));
}

TEST(ScaleTextTest, WhatIsNotKnownIsLeftToWhoReadsIt) {
  const std::string text = ScaleText(Reply(2, 1), 4, {.coordinator = "localhost:4000"});
  EXPECT_THAT(text, HasSubstr("--workers=3 --out=OUT\n"));
  EXPECT_THAT(text, HasSubstr("parley-worker --job=FILE --coordinator=localhost:4000\n"));
  EXPECT_THAT(text, EndsWith("FILE: the job file that the others were given\n"));
}

TEST(ScaleTextTest, AProgramOfOnesOwnIsNoParleyWorker) {
  SetWorkersReply reply = Reply(2, 2);
  reply.set_own_program(true);
  const std::string text = ScaleText(reply, 4, In("/runs/a"));
  EXPECT_THAT(text, HasSubstr("  YOUR_PROGRAM --job=/runs/a/job.textproto "));
  EXPECT_THAT(text, Not(HasSubstr("parley-worker --job")));
  EXPECT_THAT(text, HasSubstr("submit --workers=2")) << "which knows the program";
}

TEST(ScaleTextTest, OnSeveralMachinesAWorkerListensWhereOthersReachIt) {
  WorkerStart start = In("/runs/a");
  start.credentials = "/runs/a/credentials";
  start.is_beyond_machine = true;
  const std::string text = ScaleText(Reply(2, 2), 4, start);
  EXPECT_THAT(text, HasSubstr("--coordinator=file:/runs/a/coordinator.address "
                              "--credentials=/runs/a/credentials "
                              "--listen=HOST:0 --metrics=HOST:0\n"));
  EXPECT_THAT(text, EndsWith("HOST: the address of the machine on which it is started\n"));
}

TEST(ScaleTextTest, WhereNoSlurmHasStartedItNoneIsToStartMore) {
  WorkerStart start = In("/runs/a");
  start.may_be_on_slurm = false;
  EXPECT_THAT(ScaleText(Reply(2, 2), 4, start), Not(HasSubstr("lurm")));
}

TEST(ScaleTextTest, TheJobsDirectorySaysHowItWasStarted) {
  const auto files = PosixFileSystem();
  const std::string folder = testing::TempDir() + "/started";
  const std::string coordinator = "file:" + folder + "/coordinator.address";
  ASSERT_TRUE(files->CreateDirectories(folder + "/slurm").ok());
  const auto write = [&](const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomically(*files, folder + name, content).ok());
  };
  write("/coordinator.address", "127.0.0.1:4000\n");
  const WorkerStart by_hand = WorkerStartOf(*files, coordinator, "");
  EXPECT_EQ(by_hand.directory, folder);
  EXPECT_FALSE(by_hand.has_job_file || by_hand.may_be_on_slurm || by_hand.is_beyond_machine);
  write("/job.textproto", "");
  write("/slurm/role", "");
  write("/coordinator.address", "10.0.0.7:4000\n");
  const WorkerStart submitted = WorkerStartOf(*files, coordinator, "");
  EXPECT_TRUE(submitted.has_job_file && submitted.may_be_on_slurm && submitted.is_beyond_machine);
  write("/slurm/single", "");
  EXPECT_FALSE(WorkerStartOf(*files, coordinator, "").may_be_on_slurm);
  const WorkerStart elsewhere = WorkerStartOf(*files, "node1:4000", "");
  EXPECT_TRUE(elsewhere.directory.empty() && !elsewhere.has_job_file);
  EXPECT_TRUE(elsewhere.may_be_on_slurm && elsewhere.is_beyond_machine);
}

TEST(ScaleTextTest, TheCommandsSurviveSpaces) {
  const std::string text = ScaleText(Reply(2, 2), 4, In("/my runs/it's"));
  EXPECT_THAT(text, HasSubstr("submit --workers=2 '--out=/my runs/it'\\''s'\n"));
  EXPECT_THAT(text, HasSubstr("parley-worker '--job=/my runs/it'\\''s/job.textproto' "
                              "'--coordinator=file:/my runs/it'\\''s/coordinator.address'\n"));
}

TEST(ScaleTextTest, FewerWorkersGoByThemselves) {
  const std::string text = ScaleText(Reply(4, 3), 3, In("/runs/a"));
  EXPECT_THAT(text, HasSubstr("those with the highest numbers go"));
  EXPECT_THAT(text, Not(HasSubstr("to start")));
  // One is missing that was lost before.
  EXPECT_THAT(ScaleText(Reply(4, 2), 3, In("/runs/a")), HasSubstr("--workers=1"));
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
