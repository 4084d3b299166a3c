#include "client/parley/member_metrics.h"

#include <iterator>
#include <utility>

namespace parley {
namespace {

using Sum = MemberMetrics::Sum;

// Of what was observed between two scrapes; else of all.
std::optional<double> Mean(const Sum& first, const Sum& last) {
  if (last.count > first.count) return (last.sum - first.sum) / (last.count - first.count);
  if (last.count > 0) return last.sum / last.count;
  return std::nullopt;
}

Sum SumOf(const std::map<std::string, Sum>& sums, const std::string& phase) {
  const auto found = sums.find(phase);
  return found == sums.end() ? Sum() : found->second;
}

}  // namespace

MemberMetrics MemberMetrics::Of(const std::vector<MetricSample>& samples) {
  MemberMetrics metrics;
  for (const MetricSample& sample : samples) {
    const auto phase = sample.labels.find("phase");
    if (sample.name == "parley_step_phase_duration_seconds_sum" && phase != sample.labels.end()) {
      metrics.phase_seconds[phase->second].sum = sample.value;
    } else if (sample.name == "parley_step_phase_duration_seconds_count" &&
               phase != sample.labels.end()) {
      metrics.phase_seconds[phase->second].count = sample.value;
    } else if (sample.name == "parley_staleness_steps_sum") {
      metrics.staleness.sum = sample.value;
    } else if (sample.name == "parley_staleness_steps_count") {
      metrics.staleness.count = sample.value;
    } else if (sample.name == "process_cpu_seconds_total") {
      metrics.cpu_seconds = sample.value;
    } else if (sample.name == "process_start_time_seconds") {
      metrics.started_at = sample.value;
    } else if (sample.name == "process_resident_memory_bytes") {
      metrics.resident_bytes = sample.value;
    } else if (sample.name == "parley_pipeline_bubble_ratio") {
      metrics.bubble = sample.value;
    }
  }
  return metrics;
}

void MetricsWindow::See(uint64_t member, absl::Time now, MemberMetrics metrics) {
  std::deque<Seen>& seen = members_[member];
  seen.push_back({now, std::move(metrics)});
  while (seen.size() > 2 && now - seen[1].time >= kWindow) seen.pop_front();
}

void MetricsWindow::Keep(const std::set<uint64_t>& members) {
  for (auto at = members_.begin(); at != members_.end();) {
    at = members.count(at->first) != 0 ? std::next(at) : members_.erase(at);
  }
}

std::optional<MemberLook> MetricsWindow::Look(uint64_t member) const {
  const auto found = members_.find(member);
  if (found == members_.end()) return std::nullopt;
  const Seen& first = found->second.front();
  const Seen& last = found->second.back();
  MemberLook look;
  for (const auto& [phase, sum] : last.metrics.phase_seconds) {
    if (const auto mean = Mean(SumOf(first.metrics.phase_seconds, phase), sum)) {
      look.phase_seconds[phase] = *mean;
    }
  }
  look.staleness = Mean(first.metrics.staleness, last.metrics.staleness);
  const double seconds = absl::ToDoubleSeconds(last.time - first.time);
  const double age = absl::ToDoubleSeconds(last.time - absl::UnixEpoch()) - last.metrics.started_at;
  if (seconds > 0) {
    look.cpu = (last.metrics.cpu_seconds - first.metrics.cpu_seconds) / seconds;
  } else if (age > 0 && last.metrics.started_at > 0) {
    look.cpu = last.metrics.cpu_seconds / age;
  }
  look.resident_bytes = last.metrics.resident_bytes;
  look.bubble = last.metrics.bubble;
  return look;
}

}  // namespace parley
