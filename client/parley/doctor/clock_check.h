#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_CLOCK_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_CLOCK_CHECK_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/parley/doctor/finding.h"
#include "common/file_system.h"

namespace parley {

// What the kernel says of this machine's clock.
struct ClockFacts {
  bool told = false;          // the kernel lets itself be asked
  bool synchronised = false;  // somebody (NTP, PTP) keeps it right
  absl::Duration largest_error;
  bool goes_back = false;  // the monotonic one, on which all deadlines rest
};

ClockFacts LookAtClock();
Findings CheckClock(const ClockFacts& facts);

// So much another clock is ahead of this machine's.
struct ClockSkew {
  absl::Duration ahead;
  absl::Duration uncertain;  // it may be so much more or less
};

// whose: "the file server", for messages.
Finding CheckSkew(const std::string& what, const std::string& whose, const ClockSkew& skew);

// The clock of the coordinator that writes its log into `directory`, a job's: its newest record
// says what the time was when it was written, and the file server when that was by its own clock,
// of which `server` says how much it is ahead of ours. Nothing where there is no record.
std::optional<ClockSkew> CoordinatorSkew(FileSystem& files, const std::string& directory,
                                         const ClockSkew& server);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_CLOCK_CHECK_H_
