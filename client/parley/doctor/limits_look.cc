#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/parley/doctor/limits_check.h"
#include "common/usable_cores.h"

namespace parley {
namespace {

ProcessLimit LimitOf(int resource) {
  rlimit limit{};
  // Its first argument has another type in C++ with glibc; the numbers are the same.
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return {};
  const auto value = [](rlim_t bytes) {
    return bytes == RLIM_INFINITY ? ProcessLimit::kUnlimited : uint64_t{bytes};
  };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

// "MemAvailable:   23 kB" of /proc/meminfo, in bytes.
std::optional<uint64_t> MemoryLine(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (!absl::StartsWith(line, name)) continue;
    std::istringstream words(line.substr(name.size()));
    uint64_t kilobytes = 0;
    if (words >> kilobytes) return kilobytes << 10;
  }
  return std::nullopt;
}

// Threads of the machine, out of "0.1 0.2 0.3 1/200 4711".
std::optional<uint64_t> ThreadsNow(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  if (words.size() < 4) return std::nullopt;
  const std::vector<std::string> counts = absl::StrSplit(words[3], '/');
  uint64_t threads = 0;
  if (counts.size() != 2 || !absl::SimpleAtoi(counts[1], &threads)) return std::nullopt;
  return threads;
}

// The folders in which the control groups of this process tell of `controller`, from its own
// upwards; of version 2 and 1 alike, since machines mix them.
std::vector<std::string> GroupFolders(const SystemFiles& files, const std::string& controller) {
  std::vector<std::string> folders;
  const std::string text = files.Text("/proc/self/cgroup").value_or("");
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (const std::string& line : lines) {
    // NUMBER:CONTROLLERS:PATH
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    std::string mount;
    if (parts[1].empty()) {
      mount = "/sys/fs/cgroup";
    } else if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      mount = "/sys/fs/cgroup/" + controller;
    } else {
      continue;
    }
    std::string path = parts[2];
    while (!path.empty()) {
      if (path != "/") folders.push_back(mount + path);
      path = path == "/" ? "" : path.substr(0, path.rfind('/'));
    }
    folders.push_back(mount);
  }
  return folders;
}

void LookAtMemoryGroups(const SystemFiles& files, LimitFacts& facts) {
  const auto take = [&](const std::string& folder, const char* limit_file, const char* used_file) {
    const auto limit = files.Number(absl::StrCat(folder, "/", limit_file));
    const auto used = files.Number(absl::StrCat(folder, "/", used_file));
    // Version 1 has a number that no machine reaches where there is no limit.
    if (!limit || !used || *limit >= (uint64_t{1} << 60)) return;
    const uint64_t left = *limit - std::min(*limit, *used);
    if (facts.group_memory_left && *facts.group_memory_left <= left) return;
    facts.group_memory_left = left;
    facts.group_memory_limit = *limit;
    facts.group = folder;
  };
  for (const std::string& folder : GroupFolders(files, "memory")) {
    take(folder, "memory.max", "memory.current");
    take(folder, "memory.limit_in_bytes", "memory.usage_in_bytes");
  }
}

void LookAtOtherGroups(const SystemFiles& files, LimitFacts& facts) {
  for (const std::string& folder : GroupFolders(files, "pids")) {
    const auto limit = files.Number(folder + "/pids.max");
    const auto used = files.Number(folder + "/pids.current");
    if (!limit || !used) continue;
    const uint64_t left = *limit - std::min(*limit, *used);
    facts.group_threads_left = std::min(left, facts.group_threads_left.value_or(left));
  }
  const auto take_cores = [&](double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    facts.group_cores = std::min(quota / period, facts.group_cores.value_or(quota / period));
  };
  for (const std::string& folder : GroupFolders(files, "cpu")) {
    const auto both = files.Numbers(folder + "/cpu.max");
    if (both.size() == 2) take_cores(static_cast<double>(both[0]), static_cast<double>(both[1]));
    // -1 where there is no limit, which is no number here.
    const auto quota = files.Number(folder + "/cpu.cfs_quota_us");
    const auto period = files.Number(folder + "/cpu.cfs_period_us");
    if (quota && period) take_cores(static_cast<double>(*quota), static_cast<double>(*period));
  }
}

}  // namespace

LimitFacts LookAtLimits(const SystemFiles& files) {
  LimitFacts facts;
  facts.open_files = LimitOf(RLIMIT_NOFILE);
  facts.processes = LimitOf(RLIMIT_NPROC);
  facts.addresses = LimitOf(RLIMIT_AS);
  facts.file_size = LimitOf(RLIMIT_FSIZE);
  facts.core_file = LimitOf(RLIMIT_CORE);
  facts.exempt = ::geteuid() == 0;
  facts.threads = ThreadsNow(files.Text("/proc/loadavg").value_or(""));
  const std::string memory = files.Text("/proc/meminfo").value_or("");
  facts.memory_available = MemoryLine(memory, "MemAvailable:");
  facts.memory_in_all = MemoryLine(memory, "MemTotal:");
  LookAtMemoryGroups(files, facts);
  LookAtOtherGroups(files, facts);
  facts.cores = static_cast<uint64_t>(UsableCores());
  facts.mappings = files.Number("/proc/sys/vm/max_map_count");
  return facts;
}

}  // namespace parley
