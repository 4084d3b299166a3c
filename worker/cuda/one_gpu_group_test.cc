// Two ranks on one GPU, each a process of its own. NCCL refuses two ranks on one GPU of one host,
// so each is told to be on a host of its own (NCCL_HOSTID): what they send each other goes through
// sockets. It is the only group of more than one rank that a machine with one GPU can have.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/cuda/testing/sums_of_ranks.h"
#include "worker/device/plugin_loader.h"

namespace parley {
namespace {

constexpr uint32_t kRanks = 2;

const DevicePlugin& Plugin() {
  static const DevicePlugin* const plugin = *LoadDevicePlugin("worker/cuda/libparley_cuda.so");
  return *plugin;
}

// This program again as one of the ranks.
pid_t StartRank(const std::string& what, uint32_t rank, const std::string& id) {
  std::string program = "/proc/self/exe";
  std::string filter = "--gtest_filter=Rank." + what;
  std::string rank_text = absl::StrCat("ONE_GPU_GROUP_RANK=", rank);
  std::string id_text = "ONE_GPU_GROUP_ID=" + absl::BytesToHexString(id);
  std::string host = absl::StrCat("NCCL_HOSTID=parley_test_", rank);
  std::vector<char*> arguments = {program.data(), filter.data(), nullptr};
  std::vector<char*> environment = {rank_text.data(), id_text.data(), host.data()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  pid_t child = 0;
  EXPECT_EQ(
      posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environment.data()),
      0);
  return child;
}

void BothRanksDo(const std::string& what) {
  const auto id = Plugin().make_group_id();
  ASSERT_TRUE(id.ok()) << id.status();
  std::vector<pid_t> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) ranks.push_back(StartRank(what, rank, *id));
  for (const pid_t rank : ranks) {
    int status = 0;
    ASSERT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0) << "a rank has failed: what it says is above";
  }
}

TEST(OneGpuGroup, EachRankGetsTheSumOfItsPartAndAllGetAll) { BothRanksDo("ReducesAndGathers"); }
TEST(OneGpuGroup, EachPartsSumComesToItsRank) { BothRanksDo("ReducesParts"); }
TEST(OneGpuGroup, EachRanksPartsComeToAll) { BothRanksDo("BroadcastsParts"); }

// What a rank is told by StartRank; none where this program is not one.
std::optional<DeviceGroup::Options> AsRank() {
  const char* const rank = getenv("ONE_GPU_GROUP_RANK");
  const char* const id = getenv("ONE_GPU_GROUP_ID");
  if (rank == nullptr || id == nullptr) return std::nullopt;
  DeviceGroup::Options options;
  options.ranks = kRanks;
  options.id = absl::HexStringToBytes(id);
  if (!absl::SimpleAtoi(rank, &options.rank)) return std::nullopt;
  return options;
}

TEST(Rank, ReducesAndGathers) {
  const auto options = AsRank();
  if (!options.has_value()) return;
  ReduceAndGather(Plugin(), 0, *options);
}

TEST(Rank, ReducesParts) {
  const auto options = AsRank();
  if (!options.has_value()) return;
  ReduceParts(Plugin(), 0, *options);
}

TEST(Rank, BroadcastsParts) {
  const auto options = AsRank();
  if (!options.has_value()) return;
  BroadcastParts(Plugin(), 0, *options);
}

}  // namespace
}  // namespace parley
