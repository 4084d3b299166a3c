#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_LIMITS_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_LIMITS_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/job_needs.h"
#include "client/parley/doctor/system_files.h"

namespace parley {

// A limit of this process; kUnlimited where there is none. The soft one counts, and may be raised
// to the hard one.
struct ProcessLimit {
  static constexpr uint64_t kUnlimited = ~uint64_t{0};
  uint64_t soft = kUnlimited;
  uint64_t hard = kUnlimited;
};

// What the system lets processes have here.
struct LimitFacts {
  ProcessLimit open_files;
  ProcessLimit processes;  // threads, of all processes of the user
  ProcessLimit addresses;
  ProcessLimit file_size;
  ProcessLimit core_file;
  bool exempt = false;                         // from the limit of processes, as root is
  std::optional<uint64_t> threads;             // that the machine has now
  std::optional<uint64_t> group_threads_left;  // of the control groups: until their limit
  std::optional<uint64_t> memory_available;    // bytes, of the machine
  std::optional<uint64_t> memory_in_all;       // bytes, of the machine
  std::optional<uint64_t> group_memory_left;   // bytes, of the control groups: until their limit
  std::optional<uint64_t> group_memory_limit;  // bytes, of that group
  std::string group;                           // that group's name
  uint64_t cores = 1;                          // that this process may run on
  std::optional<double> group_cores;           // processor time that the groups let it have
  std::optional<uint64_t> mappings;            // of one process
};

LimitFacts LookAtLimits(const SystemFiles& files);

// Whether that is enough for the job.
Findings CheckLimits(const LimitFacts& facts, const JobNeeds& needs);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_LIMITS_CHECK_H_
