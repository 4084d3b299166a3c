// Either side of a pair with shared memory is killed at any moment, round after round: no update is
// lost or doubled, no mixture is read, nobody hangs, and nothing of the dead is left.
//
//   local_kill_test [--rounds=N]      20 of each, unless it says otherwise
//
// Run as `local_kill_test worker ADDRESS STEP` and `... shard ADDRESS` it is what is killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/child_for_test.h"
#include "server/parameter_shard/local_door_fixture.h"

namespace parley::testing {
namespace {

int rounds = 20;

bool IsUniform(const Floats& values, float value) {
  return std::all_of(values.begin(), values.end(), [&](float each) { return each == value; });
}

// How many segments this process has mapped.
int Segments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += absl::StrContains(line, "memfd:parley");
  return count;
}

std::string AnAddress() {
  return absl::StrCat("127.0.0.1:", ::getpid(), " ", absl::ToUnixNanos(absl::Now()));
}

// Steps of one: each changes every value by exactly that.
int BeWorker(const std::string& address, uint64_t step) {
  LocalWorker worker;
  if (!worker.Connect(address)) return 3;
  for (bool first = true;; first = false, ++step) {
    if (!worker.Step(step, 1).ok()) return 4;
    const auto pulled = worker.Pull(step);
    if (!pulled.ok()) return 5;
    if (!IsUniform(LocalWorker::FloatsOf(*pulled), -static_cast<float>(step))) return 6;
    if (first) TellParent("at work");
  }
}

int BeShard(const std::string& address) {
  const LocalShard shard(address);
  if (!shard.status().ok()) return 3;
  TellParent("at work");
  ::pause();
  return 0;
}

TEST(LocalKillTest, AWorkerIsKilled) {
  std::mt19937 random(1);
  LocalShard shard(AnAddress());
  ASSERT_TRUE(shard.status().ok()) << shard.status();
  const auto version = [&] {
    return shard.core().Read([](const Shard* s) { return s->version(); });
  };
  const int segments = Segments();
  for (int round = 0; round < rounds; ++round) {
    const uint64_t before = version();
    ChildForTest child({"worker", shard.address(), absl::StrCat(before + 1)});
    absl::SleepFor(absl::Microseconds(random() % 3000));
    ASSERT_EQ(child.Kill(), 0) << "round " << round;
    ASSERT_GT(version(), before);
    // What it has left: the values of the last decided step, whole; perhaps a push of the next one.
    LocalWorker reader;
    ASSERT_TRUE(reader.Connect(shard.address()));
    uint64_t decided = version();
    auto pulled = reader.Pull(decided);
    while (version() != decided) {  // a Complete of the dead was on its way
      decided = version();
      pulled = reader.Pull(decided);
    }
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    ASSERT_TRUE(IsUniform(LocalWorker::FloatsOf(*pulled), -static_cast<float>(decided)));
  }
  LocalWorker last;
  ASSERT_TRUE(last.Connect(shard.address()));
  ASSERT_EQ(last.Step(version() + 1, 1), absl::OkStatus());
  last.Disconnect();
  // The shard lets go of what the dead had lent when it learns of their ends.
  for (const absl::Time deadline = LocalWorker::Soon(); absl::Now() < deadline;) {
    if (Segments() <= segments + 1) break;  // the last one's arena is this process's
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_LE(Segments(), segments + 1);
  std::printf("%d workers killed in %d steps\n", rounds, static_cast<int>(version()));
}

TEST(LocalKillTest, AShardIsKilled) {
  std::mt19937 random(2);
  const int segments = Segments();
  uint64_t steps = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string address = AnAddress();
    ChildForTest child({"shard", address});
    LocalWorker worker;
    ASSERT_TRUE(worker.Connect(address));
    absl::Status status;
    std::thread killer([&child, pause = absl::Microseconds(random() % 5000)] {
      absl::SleepFor(pause);
      EXPECT_EQ(child.Kill(), 0);
    });
    const absl::Time begin = absl::Now();
    for (uint64_t step = 1; status.ok(); ++step) {
      status = worker.Step(step, 1);
      if (!status.ok()) break;
      const auto pulled = worker.Pull(step);
      status = pulled.status();
      if (!status.ok()) break;
      // Also where it dies meanwhile: the memory stays while it is read.
      const Floats values = LocalWorker::FloatsOf(*pulled);
      if (pulled->slices[0].loan->Stands()) {
        EXPECT_TRUE(IsUniform(values, -static_cast<float>(step)));
      }
      ++steps;
    }
    killer.join();
    // Unavailable from the link, Unimplemented from what stands for gRPC here.
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsUnimplemented(status)) << status;
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  }
  EXPECT_EQ(Segments(), segments);
  std::printf("%d shards killed in %d steps\n", rounds, static_cast<int>(steps));
}

}  // namespace
}  // namespace parley::testing

int main(int argc, char** argv) {
  using namespace parley::testing;
  uint64_t step = 0;
  if (argc == 4 && std::string(argv[1]) == "worker" && absl::SimpleAtoi(argv[3], &step)) {
    return BeWorker(argv[2], step);
  }
  if (argc == 3 && std::string(argv[1]) == "shard") return BeShard(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (!absl::ConsumePrefix(&flag, "--rounds=") || !absl::SimpleAtoi(flag, &rounds)) return 2;
  }
  return RUN_ALL_TESTS();
}
