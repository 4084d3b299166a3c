#ifndef PARLEY_CLIENT_PARLEY_MEMBER_METRICS_H_
#define PARLEY_CLIENT_PARLEY_MEMBER_METRICS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/parley/metrics_text.h"

namespace parley {

// What one scrape of a member says, as far as `parley top` shows it.
struct MemberMetrics {
  // A histogram: all that was observed since the process began.
  struct Sum {
    double sum = 0;
    double count = 0;
  };
  std::map<std::string, Sum> phase_seconds;  // by phase
  Sum staleness;                             // in updates
  double cpu_seconds = 0;
  double started_at = 0;  // in seconds since 1970
  double resident_bytes = 0;
  std::optional<double> bubble;  // of a pipeline's last step

  static MemberMetrics Of(const std::vector<MetricSample>& samples);
};

// The same as means: over the last seconds if something has happened in them, else since the
// process began.
struct MemberLook {
  std::map<std::string, double> phase_seconds;  // of one step, or of what a shard does once
  std::optional<double> staleness;
  std::optional<double> cpu;  // cores
  double resident_bytes = 0;
  std::optional<double> bubble;
};

// The scrapes of the last seconds, of all members. Not thread-safe.
class MetricsWindow {
 public:
  static constexpr absl::Duration kWindow = absl::Seconds(10);

  // A scrape of the member of this id.
  void See(uint64_t member, absl::Time now, MemberMetrics metrics);
  // Forgets all others: they have gone.
  void Keep(const std::set<uint64_t>& members);

  // Nothing where the member has not been seen.
  std::optional<MemberLook> Look(uint64_t member) const;

 private:
  struct Seen {
    absl::Time time;
    MemberMetrics metrics;
  };
  std::map<uint64_t, std::deque<Seen>> members_;  // oldest first, never empty
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_MEMBER_METRICS_H_
