#ifndef PARLEY_CLIENT_PARLEY_TOP_TEXT_H_
#define PARLEY_CLIENT_PARLEY_TOP_TEXT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/parley/member_metrics.h"
#include "proto/coordinator.pb.h"

namespace parley {

// All that `parley top` knows of a job at a moment.
struct TopFrame {
  GetStatusReply status;                        // the newest
  absl::Duration status_age;                    // since it came
  std::optional<absl::Duration> left;           // of the job
  std::map<uint64_t, MemberLook> looks;         // by member; of those whose metrics are known
  std::map<uint64_t, std::string> not_scraped;  // why the last scrape failed
};

// Where it is drawn.
struct TopPage {
  int columns = 80;
  int rows = 0;         // 0: as many as it takes
  bool colour = false;  // with escape sequences for bold and red
};

// The members that are silent for longer than others are between two heartbeats, by their names,
// with the time.
std::map<std::string, absl::Duration> SilentMembers(const GetStatusReply& status);

// The frame as lines, each ended: where the job is, its members, and where a step's time goes.
std::string TopText(const TopFrame& frame, const TopPage& page);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_TOP_TEXT_H_
