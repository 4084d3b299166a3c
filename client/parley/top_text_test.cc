#include "client/parley/top_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace parley {
namespace {

MemberStatus& AddMember(GetStatusReply& status, Role role, uint32_t ordinal, double heard_of) {
  MemberStatus& member = *status.add_members();
  member.mutable_member()->set_id(100 * role + ordinal);
  member.mutable_member()->set_role(role);
  member.mutable_member()->set_ordinal(ordinal);
  member.set_step(620);
  member.set_seconds_since_heartbeat(heard_of);
  return member;
}

uint64_t IdOf(Role role, uint32_t ordinal) { return 100 * role + ordinal; }

// Two workers and a shard in the middle of training.
TopFrame Training() {
  TopFrame frame;
  GetStatusReply& status = frame.status;
  status.set_job("small");
  status.set_phase(TRAINING);
  status.set_step(620);
  status.set_total_steps(1500);
  status.set_data_epoch(2);
  status.set_epochs(5);
  status.set_loss(0.41234);
  status.set_samples_per_second(1923.4);
  status.set_seconds_training(723);
  status.set_generation(1);
  status.set_job_epoch(1);
  status.set_view_epoch(1);
  status.set_expected_members(3);
  Evaluation& evaluation = *status.add_evaluations();
  evaluation.set_epoch(2);
  evaluation.set_version(600);
  evaluation.set_samples(10000);
  evaluation.set_loss_sum(3000);
  evaluation.set_correct(8812);
  evaluation.set_correct_top5(9971);
  evaluation.set_classes(true);
  status.set_checkpoint_step(600);
  status.set_checkpoint_directory("/runs/small/checkpoints/step-00000600");
  AddMember(status, SHARD, 0, 0.4);
  AddMember(status, WORKER, 0, 1.3);
  AddMember(status, WORKER, 1, 2.1);
  MemberLook& shard = frame.looks[IdOf(SHARD, 0)];
  shard.phase_seconds = {{"reduce", 0.00012}, {"apply", 0.00345}};
  shard.cpu = 0.254;
  shard.resident_bytes = 50 << 20;
  MemberLook& worker = frame.looks[IdOf(WORKER, 0)];
  worker.phase_seconds = {{"data", 0.001}, {"forward", 0.006}, {"backward", 0.012}, {"push", 0.001},
                          {"wait", 0.003}, {"pull", 0.001},    {"evaluate", 2.5}};
  worker.cpu = 0.98;
  worker.resident_bytes = 312 << 20;
  frame.looks[IdOf(WORKER, 1)] = worker;
  frame.left = absl::Seconds(185);
  return frame;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(TopText, ShowsTheJobItsMembersAndWhereTheTimeGoes) {
  EXPECT_EQ(TopText(Training(), {.columns = 110}),
            R"(small  training  trained for 12:03  generation 1  job epoch 1  view 1
[#########---------------]  41%  epoch 3/5  step 620/1500  loss 0.4123  1923 samples/s  3:05 left
evaluation   epoch 2  step 600  accuracy 0.8812  top-5 0.9971  loss 0.3000
checkpoint   step 600 in /runs/small/checkpoints/step-00000600

MEMBER            STEP  HEARD OF    CPU     MEMORY  3 OF 3 ARE HERE
shard-0            620     0.4 s   0.25   50.0 MiB
worker-0           620     1.3 s   0.98    312 MiB
worker-1           620     2.1 s   0.98    312 MiB

MS OF A STEP      ALL     DATA  FORWARD BACKWARD     PUSH     WAIT     PULL  d f b > . <
worker-0         24.0      1.0      6.0     12.0      1.0      3.0      1.0  dfffffffffbbbbbbbbbbbbbbbb>>....<
worker-1         24.0      1.0      6.0     12.0      1.0      3.0      1.0  dfffffffffbbbbbbbbbbbbbbbb>>....<

MS OF A SHARD  ADD A PUSH APPLY A STEP  STALENESS
shard-0              0.12         3.45          -
)");
}

TEST(TopText, SaysWhatIsWrong) {
  TopFrame frame = Training();
  GetStatusReply& status = frame.status;
  status.set_what_is_missing("worker 2 has not joined");
  status.set_preemption("worker 1 at 127.0.0.1:1 (pid 3): preempted by SIGTERM");
  status.set_checkpoints_failed(2);
  status.set_checkpoint_error("no space");
  status.set_skipped_steps(1);
  status.set_retried_attempts(3);
  status.mutable_members(2)->set_seconds_since_heartbeat(12.3);
  frame.looks.erase(IdOf(WORKER, 1));
  frame.not_scraped[IdOf(WORKER, 1)] = "127.0.0.1:9: no answer within 2s";
  status.mutable_members(1)->set_left(true);
  frame.status_age = absl::Seconds(7);
  const std::string text = TopText(frame, {.columns = 200});
  for (const char* line :
       {"missing      worker 2 has not joined\n", "silent       worker-1 for 12 s\n",
        "told to end  worker 1 at 127.0.0.1:1 (pid 3): preempted by SIGTERM\n",
        "the coordinator has not answered for 7 s", "failed ones  2; the last: no space\n",
        "counts       1 steps skipped, 3 attempts retried\n",
        "silent; no metrics: 127.0.0.1:9: no answer within 2s\n", "  has left\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  }
}

TEST(TopText, NeverWiderNorHigherThanThePage) {
  TopFrame frame = Training();
  for (uint32_t worker = 2; worker < 40; ++worker) AddMember(frame.status, WORKER, worker, 1);
  for (const int columns : {0, 1, 20, 60, 80, 200}) {
    for (const int rows : {1, 5, 24, 100}) {
      const auto lines = LinesOf(TopText(frame, {.columns = columns, .rows = rows}));
      EXPECT_LE(lines.size(), static_cast<size_t>(rows));
      for (const std::string& line : lines) EXPECT_LE(line.size(), static_cast<size_t>(columns));
    }
  }
  const auto lines = LinesOf(TopText(frame, {.columns = 80, .rows = 10}));
  const size_t all = LinesOf(TopText(frame, {.columns = 80})).size();
  EXPECT_EQ(lines.back(), "... and " + std::to_string(all - 9) + " lines more");
}

TEST(TopText, ColoursChangeNoCharacter) {
  TopFrame frame = Training();
  frame.status.set_what_is_missing("worker 2 has not joined");
  const std::string plain = TopText(frame, {.columns = 100});
  std::string coloured = TopText(frame, {.columns = 100, .colour = true});
  EXPECT_NE(plain, coloured);
  for (const char* code : {"\x1b[1m", "\x1b[31m", "\x1b[0m"}) {
    for (size_t at; (at = coloured.find(code)) != std::string::npos;) {
      coloured.erase(at, std::string(code).size());
    }
  }
  EXPECT_EQ(plain, coloured);
}

TEST(TopText, WhatAMemberSaysDrawsNothing) {
  TopFrame frame = Training();
  frame.status.set_what_is_missing("\x1b[2Jworker\n2");
  const std::string text = TopText(frame, {.columns = 100});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("missing       [2Jworker 2\n"), std::string::npos) << text;
}

// A property: of times drawn at will, each part's share of the bar is its share of the time.
TEST(TopText, TheBarIsTheTimesShares) {
  for (unsigned draw = 1; draw <= 200; ++draw) {
    TopFrame frame = Training();
    frame.status.mutable_members()->RemoveLast();
    MemberLook& look = frame.looks[IdOf(WORKER, 0)];
    double total = 0;
    unsigned number = draw * 2654435761U;
    for (const char* phase : {"data", "forward", "backward", "push", "wait", "pull"}) {
      number = number * 1664525 + 1013904223;
      look.phase_seconds[phase] = (number >> 16) % 1000 / 1e3;
      total += look.phase_seconds[phase];
    }
    const auto lines = LinesOf(TopText(frame, {.columns = 160}));
    std::string bar;
    for (const std::string& line : lines) {
      if (line.rfind("worker-0 ", 0) == 0) bar = line.substr(line.rfind("  ") + 2);
    }
    ASSERT_EQ(bar.size(), 60U);
    const std::vector<std::pair<char, const char*>> parts = {{'d', "data"},     {'f', "forward"},
                                                             {'b', "backward"}, {'>', "push"},
                                                             {'.', "wait"},     {'<', "pull"}};
    for (const auto& [sign, phase] : parts) {
      const auto signs = static_cast<double>(std::count(bar.begin(), bar.end(), sign));
      EXPECT_NEAR(signs, look.phase_seconds[phase] / total * 60, 1) << bar;
    }
  }
}

TEST(SilentMembers, AreThoseThatAreLaterThanOthers) {
  GetStatusReply status;
  EXPECT_TRUE(SilentMembers(status).empty());
  // With a liveness of a minute all are heard of every 15 s.
  AddMember(status, WORKER, 0, 14);
  AddMember(status, WORKER, 1, 6);
  AddMember(status, SHARD, 0, 9);
  EXPECT_TRUE(SilentMembers(status).empty());
  AddMember(status, SHARD, 1, 40);
  AddMember(status, SHARD, 2, 50).set_left(true);
  const auto silent = SilentMembers(status);
  ASSERT_EQ(silent.size(), 1U);
  EXPECT_EQ(silent.at("shard-1"), absl::Seconds(40));
}

TEST(SilentMembers, ASecondOrTwoIsNoSilence) {
  GetStatusReply status;
  AddMember(status, WORKER, 0, 0.1);
  AddMember(status, WORKER, 1, 4.9);
  EXPECT_TRUE(SilentMembers(status).empty());
  status.mutable_members(1)->set_seconds_since_heartbeat(5.1);
  EXPECT_EQ(SilentMembers(status).size(), 1U);
}

}  // namespace
}  // namespace parley
