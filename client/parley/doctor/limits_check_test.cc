#include "client/parley/doctor/limits_check.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace parley {
namespace {

// A machine that has enough of all.
LimitFacts GoodFacts() {
  LimitFacts facts;
  facts.open_files = {20'000, 20'000};
  facts.processes = {96'000, 96'000};
  facts.threads = 200;
  facts.memory_available = uint64_t{60} << 30;
  facts.memory_in_all = uint64_t{64} << 30;
  facts.cores = 8;
  facts.mappings = 65'530;
  return facts;
}

JobNeeds Needs() {
  JobNeeds needs;
  needs.processes = 5;
  needs.computing = 2;
  needs.compute_threads = 4;
  needs.threads = 164;
  needs.open_files = 300;
  needs.memory = uint64_t{2} << 30;
  needs.largest_process = uint64_t{4} << 30;
  needs.largest_file = uint64_t{1} << 30;
  needs.mappings = 5000;
  return needs;
}

// The one that must be the only one that is not ok.
Finding OnlyFault(const LimitFacts& facts, const JobNeeds& needs = Needs()) {
  Findings bad;
  for (const Finding& finding : CheckLimits(facts, needs)) {
    if (finding.severity != Severity::kOk) bad.push_back(finding);
  }
  EXPECT_EQ(bad.size(), 1u);
  return bad.empty() ? Finding() : bad[0];
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CheckLimits, AMachineWithEnoughIsOk) {
  for (const Finding& finding : CheckLimits(GoodFacts(), Needs())) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.what << ": " << finding.found;
    EXPECT_EQ(finding.remedy, "");
  }
}

TEST(CheckLimits, FewOpenFilesAreRaisedByUlimitUpToTheHardLimit) {
  LimitFacts facts = GoodFacts();
  facts.open_files = {256, 4096};
  Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "open files");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_EQ(finding.found, "256 (hard 4096); a process of this job has up to 300");
  EXPECT_EQ(finding.remedy.substr(0, 13), "ulimit -n 300");
  facts.open_files = {256, 256};
  finding = OnlyFault(facts);
  EXPECT_TRUE(Has(finding.remedy, "/etc/security/limits.conf")) << finding.remedy;
  EXPECT_TRUE(Has(finding.remedy, "`* hard nofile 300`")) << finding.remedy;
}

TEST(CheckLimits, TheLimitOfProcessesCountsThreadsButNotForRoot) {
  LimitFacts facts = GoodFacts();
  facts.processes = {100, 96'000};
  Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "threads");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_TRUE(Has(finding.remedy, "ulimit -u 364")) << finding.remedy;
  // Enough for the job, and maybe not for what else there is.
  facts.processes = {300, 96'000};
  EXPECT_EQ(OnlyFault(facts).severity, Severity::kWarning);
  facts.exempt = true;
  for (const Finding& each : CheckLimits(facts, Needs())) EXPECT_EQ(each.severity, Severity::kOk);
  facts.group_threads_left = 100;
  finding = OnlyFault(facts);
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_TRUE(Has(finding.remedy, "pids.max"));
}

TEST(CheckLimits, ALimitOfAddressesIsTakenAway) {
  LimitFacts facts = GoodFacts();
  facts.addresses = {uint64_t{2} << 30, ProcessLimit::kUnlimited};
  Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "address space");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_TRUE(Has(finding.remedy, "ulimit -v unlimited")) << finding.remedy;
  facts.addresses = {uint64_t{2} << 30, uint64_t{2} << 30};
  EXPECT_TRUE(Has(OnlyFault(facts).remedy, "`* hard as 4194304`")) << OnlyFault(facts).remedy;
}

TEST(CheckLimits, ACheckpointsFileMustFitTheLimitOfFiles) {
  LimitFacts facts = GoodFacts();
  facts.file_size = {uint64_t{1} << 30, ProcessLimit::kUnlimited};
  const Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "file size");
  EXPECT_TRUE(Has(finding.remedy, "ulimit -f 1064960")) << finding.remedy;
}

TEST(CheckLimits, MemoryOfTheMachineAndOfTheGroup) {
  LimitFacts facts = GoodFacts();
  facts.memory_available = uint64_t{1} << 30;
  Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "memory");
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_TRUE(Has(finding.remedy, "others have the rest")) << finding.remedy;
  facts.memory_in_all = uint64_t{1} << 30;
  finding = OnlyFault(facts);
  EXPECT_FALSE(Has(finding.remedy, "others have the rest")) << finding.remedy;
  EXPECT_TRUE(Has(finding.remedy, "cluster.workers")) << finding.remedy;
  facts = GoodFacts();
  facts.group_memory_left = uint64_t{1} << 30;
  facts.group_memory_limit = uint64_t{3} << 30;
  facts.group = "/sys/fs/cgroup/slurm/job7";
  finding = OnlyFault(facts);
  EXPECT_EQ(finding.severity, Severity::kFailure);
  EXPECT_TRUE(Has(finding.found,
                  "1.00 GiB left of 3.00 GiB of the control group /sys/fs/cgroup/slurm/job7"))
      << finding.found;
  EXPECT_TRUE(Has(finding.remedy, "cluster.slurm.memory")) << finding.remedy;
}

TEST(CheckLimits, CoresMustBeAsManyAsThreads) {
  LimitFacts facts = GoodFacts();
  facts.cores = 2;
  Finding finding = OnlyFault(facts);
  EXPECT_EQ(finding.what, "cores");
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_TRUE(Has(finding.remedy, "--set threads=N")) << finding.remedy;
  facts.cores = 8;
  facts.group_cores = 2.5;
  finding = OnlyFault(facts);
  EXPECT_EQ(finding.found.substr(0, 15), "2.5 usable of 8");
  // Without `threads` a worker counts the cores, and knows of no quota.
  facts.group_cores.reset();
  JobNeeds needs = Needs();
  needs.compute_threads = 0;
  for (const Finding& each : CheckLimits(facts, needs)) EXPECT_EQ(each.severity, Severity::kOk);
  facts.group_cores = 4;
  EXPECT_EQ(OnlyFault(facts, needs).what, "cores");
}

TEST(CheckLimits, ALargeModelNeedsMappings) {
  JobNeeds needs = Needs();
  needs.mappings = 70'000;
  const Finding finding = OnlyFault(GoodFacts(), needs);
  EXPECT_EQ(finding.what, "memory maps");
  EXPECT_TRUE(Has(finding.remedy, "vm.max_map_count=140000")) << finding.remedy;
}

// A machine's /proc and /sys, in a folder.
class LookAtLimitsTest : public testing::Test {
 protected:
  ~LookAtLimitsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const std::string root_ = testing::TempDir() + "/limits";
};

TEST_F(LookAtLimitsTest, ReadsTheSmallestOfTheControlGroupsOfVersion2) {
  Write("/proc/meminfo", "MemTotal:  67108864 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
  Write("/proc/loadavg", "0.10 0.20 0.30 2/345 6789\n");
  Write("/proc/sys/vm/max_map_count", "65530\n");
  Write("/proc/self/cgroup", "0::/slurm/job7/step\n");
  const std::string groups = "/sys/fs/cgroup";
  Write(groups + "/slurm/job7/step/memory.max", "max\n");
  Write(groups + "/slurm/job7/step/memory.current", "1000\n");
  Write(groups + "/slurm/job7/memory.max", "5000000\n");
  Write(groups + "/slurm/job7/memory.current", "2000000\n");
  Write(groups + "/slurm/memory.max", "9000000\n");
  Write(groups + "/slurm/memory.current", "7000000\n");
  Write(groups + "/slurm/job7/pids.max", "100\n");
  Write(groups + "/slurm/job7/pids.current", "40\n");
  Write(groups + "/slurm/job7/cpu.max", "150000 100000\n");
  Write(groups + "/slurm/cpu.max", "max 100000\n");
  const LimitFacts facts = LookAtLimits(SystemFiles(root_));
  EXPECT_EQ(facts.memory_in_all, uint64_t{64} << 30);
  EXPECT_EQ(facts.memory_available, uint64_t{1} << 20);
  EXPECT_EQ(facts.threads, 345u);
  EXPECT_EQ(facts.mappings, 65'530u);
  EXPECT_EQ(facts.group_memory_left, 2'000'000u);
  EXPECT_EQ(facts.group_memory_limit, 9'000'000u);
  EXPECT_EQ(facts.group, groups + "/slurm");
  EXPECT_EQ(facts.group_threads_left, 60u);
  EXPECT_EQ(facts.group_cores, 1.5);
}

TEST_F(LookAtLimitsTest, ReadsVersion1WhereANumberStandsForNoLimit) {
  Write("/proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n");
  Write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4000000\n");
  Write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "3000000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000000\n");
  Write("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  const LimitFacts facts = LookAtLimits(SystemFiles(root_));
  EXPECT_EQ(facts.group_memory_left, 1'000'000u);
  EXPECT_FALSE(facts.group_cores.has_value());
  EXPECT_FALSE(facts.memory_available.has_value());
  EXPECT_FALSE(facts.threads.has_value());
}

TEST(LookAtLimits, KnowsThisMachine) {
  const LimitFacts facts = LookAtLimits(SystemFiles());
  EXPECT_GE(facts.cores, 1u);
  EXPECT_GT(facts.open_files.soft, 10u);
  EXPECT_TRUE(facts.memory_available.has_value());
}

}  // namespace
}  // namespace parley
