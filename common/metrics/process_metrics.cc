#include "common/metrics/process_metrics.h"

#include <prometheus/metric_family.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace parley {
namespace {

std::string Slurp(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

prometheus::MetricFamily Family(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::MetricFamily family{name, help, type, {}};
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(metric);
  return family;
}

double BootTime() {
  for (const absl::string_view line : absl::StrSplit(Slurp("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::StartsWith(line, "btime ") && absl::SimpleAtod(line.substr(6), &seconds)) {
      return seconds;
    }
  }
  return 0;
}

double OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  double count = 0;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  return count;
}

double MostOf(__rlimit_resource_t resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<double>::infinity();
  }
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  using prometheus::MetricType;
  // proc(5): the fields after the command's closing bracket; numbers are the manual's, minus 3.
  const std::string stat = Slurp("/proc/self/stat");
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')') + 2), ' ');
  const auto field = [&](size_t number) {
    double value = 0;
    return number - 3 < fields.size() && absl::SimpleAtod(fields[number - 3], &value) ? value : 0.0;
  };
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  return {
      Family("process_cpu_seconds_total", "User and system time, in seconds.", MetricType::Counter,
             (field(14) + field(15)) / ticks),
      Family("process_resident_memory_bytes", "Memory in use, in bytes.", MetricType::Gauge,
             field(24) * page),
      Family("process_virtual_memory_bytes", "Address space, in bytes.", MetricType::Gauge,
             field(23)),
      Family("process_virtual_memory_max_bytes",
             "Address space that the process may have, in bytes; +Inf: no limit.",
             MetricType::Gauge, MostOf(RLIMIT_AS)),
      Family("process_start_time_seconds", "Start of the process, in seconds since 1970.",
             MetricType::Gauge, BootTime() + field(22) / ticks),
      Family("process_threads", "Threads of the process.", MetricType::Gauge, field(20)),
      Family("process_open_fds", "Open file descriptors.", MetricType::Gauge, OpenFiles()),
      Family("process_max_fds", "File descriptors that the process may have; +Inf: no limit.",
             MetricType::Gauge, MostOf(RLIMIT_NOFILE)),
  };
}

}  // namespace parley
