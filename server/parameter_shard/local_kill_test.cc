// Either side of a pair with shared memory is killed at any moment, round after round: no update is
// lost or doubled, no mixture is read, nobody hangs, and nothing of the dead is left.
//
//   local_kill_test [--rounds=N]      20 of each with small tensors, unless it says otherwise, and
//                                     fewer with larger ones
//
// Run as `local_kill_test worker ADDRESS ELEMENTS STEP` and `... shard ADDRESS ELEMENTS` it is what
// is killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "client/parameter_arena.h"
#include "common/child_for_test.h"
#include "common/clock/steady_now.h"
#include "server/parameter_shard/local_door_fixture.h"

namespace parley::testing {
namespace {

int rounds = 20;

// What is different at a size. Of 1 MiB values stand among the worker's parameters where the shard
// has them; of 32 MiB a step is carried out piece by piece, on a thread of the shard's, while its
// worker has the verdict and asks for them.
struct Size {
  const char* name;
  size_t elements;
  int one_in;    // so many of the rounds that were asked for, but 3 at least
  int pause_us;  // the longest, before somebody is killed: a few steps
};

bool IsUniform(absl::Span<const std::byte> values, float value) {
  if (std::memcmp(values.data(), &value, sizeof(value)) != 0) return false;
  return std::memcmp(values.data(), values.data() + sizeof(value), values.size() - sizeof(value)) ==
         0;
}
bool IsUniform(const Floats& values, float value) {
  return IsUniform(absl::MakeSpan(reinterpret_cast<const std::byte*>(values.data()),
                                  values.size() * sizeof(float)),
                   value);
}

// A training loop's parameters, which are not copied where they can be shown.
class Parameters {
 public:
  explicit Parameters(size_t elements) {
    const ClusterView view = LocalView(elements);
    auto arena = ParameterArena::Make({view.tensors().begin(), view.tensors().end()});
    EXPECT_TRUE(arena.ok()) << arena.status();
    arena_ = *std::move(arena);
  }

  absl::Status Take(const TensorPull& pulled) {
    size_t begin = 0;
    for (const TensorSlice& slice : pulled.slices) {
      const size_t bytes = slice.bytes.size();
      const auto shown = arena_->Show(0, begin, slice);
      if (!shown.ok()) return shown.status();
      if (*shown != (bytes >= ParameterArena::kShown)) return absl::InternalError("shown or not");
      if (!*shown) {
        const auto own = arena_->Own(0, begin, bytes);
        if (!own.ok()) return own.status();
        slice.bytes.CopyTo(*own);
      }
      begin += bytes;
    }
    return absl::OkStatus();
  }
  // That there is no mixture, nor anything else.
  bool Are(float value) const { return IsUniform(arena_->tensor(0), value) && arena_->Stands(); }

 private:
  std::unique_ptr<ParameterArena> arena_;
};

// How many segments this process has mapped.
int Segments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += absl::StrContains(line, "memfd:parley");
  return count;
}

std::string AnAddress() {
  return absl::StrCat("127.0.0.1:", ::getpid(), " ", absl::ToUnixNanos(SteadyNow()));
}

// Steps of one: each changes every value by exactly that. Tells of each that it has the verdict of.
int BeWorker(const std::string& address, size_t elements, uint64_t step) {
  LocalWorker worker(elements);
  Parameters parameters(elements);
  worker.AskAtOnce();
  if (!worker.Connect(address)) return 3;
  for (;; ++step) {
    if (!worker.Step(step, 1).ok()) return 4;
    TellParent(absl::StrCat(step));
    const auto pulled = worker.Pull(step);
    if (!pulled.ok() || !parameters.Take(*pulled).ok()) return 5;
    if (!parameters.Are(-static_cast<float>(step))) return 6;
  }
}

int BeShard(const std::string& address, size_t elements) {
  const LocalShard shard(address, elements);
  if (!shard.status().ok()) return 3;
  TellParent("at work");
  ::pause();
  return 0;
}

class LocalKillTest : public ::testing::TestWithParam<Size> {
 protected:
  const size_t elements_ = GetParam().elements;
  const int rounds_ = std::max(rounds / GetParam().one_in, 3);
};

TEST_P(LocalKillTest, AWorkerIsKilled) {
  std::mt19937 random(1);
  LocalShard shard(AnAddress(), elements_);
  ASSERT_TRUE(shard.status().ok()) << shard.status();
  const auto version = [&] {
    return shard.core().Read([](const Shard* s) { return s->version(); });
  };
  const int segments = Segments();
  for (int round = 0; round < rounds_; ++round) {
    const uint64_t before = version();
    ChildForTest child(
        {"worker", shard.address(), absl::StrCat(elements_), absl::StrCat(before + 1)});
    absl::SleepFor(absl::Microseconds(random() % GetParam().pause_us));
    ASSERT_EQ(child.Kill(), 0) << "round " << round;
    uint64_t acknowledged = before + 1;
    ASSERT_EQ(child.first_line(), absl::StrCat(acknowledged));
    for (const std::string& line : child.OtherLines()) {
      ASSERT_EQ(line, absl::StrCat(++acknowledged));
    }
    // What it has left: the values of the last decided step, whole; perhaps a push of the next one.
    LocalWorker reader(elements_);
    ASSERT_TRUE(reader.Connect(shard.address()));
    uint64_t decided = version();
    auto pulled = reader.Pull(decided);
    while (version() != decided) {  // a Complete of the dead was on its way
      decided = version();
      pulled = reader.Pull(decided);
    }
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    ASSERT_TRUE(IsUniform(LocalWorker::FloatsOf(*pulled), -static_cast<float>(decided)));
    // All that it was told of is there, and no more than one that it was not.
    ASSERT_GE(decided, acknowledged);
    ASSERT_LE(decided, acknowledged + 1);
  }
  LocalWorker last(elements_);
  ASSERT_TRUE(last.Connect(shard.address()));
  ASSERT_EQ(last.Step(version() + 1, 1), absl::OkStatus());
  last.Disconnect();
  // The shard lets go of what the dead had lent when it learns of their ends.
  for (const absl::Time deadline = LocalWorker::Soon(); SteadyNow() < deadline;) {
    if (Segments() <= segments + 1) break;  // the last one's arena is this process's
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_LE(Segments(), segments + 1);
  std::printf("%d workers killed in %d steps of %s\n", rounds_, static_cast<int>(version()),
              GetParam().name);
}

TEST_P(LocalKillTest, AShardIsKilled) {
  std::mt19937 random(2);
  const int segments = Segments();
  uint64_t steps = 0;
  for (int round = 0; round < rounds_; ++round) {
    const std::string address = AnAddress();
    ChildForTest child({"shard", address, absl::StrCat(elements_)});
    LocalWorker worker(elements_);
    Parameters parameters(elements_);
    worker.AskAtOnce();
    ASSERT_TRUE(worker.Connect(address));
    absl::Status status;
    std::thread killer([&child, pause = absl::Microseconds(random() % (2 * GetParam().pause_us))] {
      absl::SleepFor(pause);
      EXPECT_EQ(child.Kill(), 0);
    });
    const absl::Time begin = SteadyNow();
    for (uint64_t step = 1; status.ok(); ++step) {
      status = worker.Step(step, 1);
      if (!status.ok()) break;
      const auto pulled = worker.Pull(step);
      status = pulled.status();
      if (!status.ok()) break;
      EXPECT_EQ(parameters.Take(*pulled), absl::OkStatus());
      // Also where it dies meanwhile: the memory stays while it is read.
      EXPECT_TRUE(parameters.Are(-static_cast<float>(step))) << step;
      ++steps;
    }
    killer.join();
    // Unavailable from the link, Unimplemented from what stands for gRPC here.
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsUnimplemented(status)) << status;
    EXPECT_LT(SteadyNow() - begin, absl::Seconds(20));
  }
  EXPECT_EQ(Segments(), segments);
  std::printf("%d shards killed in %d steps of %s\n", rounds_, static_cast<int>(steps),
              GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalKillTest,
                         ::testing::Values(Size{"20KB", kLocalElements, 1, 3'000},
                                           Size{"1MiB", 256 << 10, 4, 10'000},
                                           Size{"32MiB", 8 << 20, 40, 100'000}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace parley::testing

int main(int argc, char** argv) {
  using namespace parley::testing;
  size_t elements = 0;
  uint64_t step = 0;
  if (argc == 5 && std::string(argv[1]) == "worker" && absl::SimpleAtoi(argv[3], &elements) &&
      absl::SimpleAtoi(argv[4], &step)) {
    return BeWorker(argv[2], elements, step);
  }
  if (argc == 4 && std::string(argv[1]) == "shard" && absl::SimpleAtoi(argv[3], &elements)) {
    return BeShard(argv[2], elements);
  }
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    absl::string_view flag = argv[i];
    if (!absl::ConsumePrefix(&flag, "--rounds=") || !absl::SimpleAtoi(flag, &rounds)) return 2;
  }
  return RUN_ALL_TESTS();
}
