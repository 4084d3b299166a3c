#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_SHARED_MEMORY_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_SHARED_MEMORY_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/system_files.h"

namespace parley {

// What processes of one machine need to show each other their memory (docs/shared_memory.md).
struct SharedMemoryFacts {
  absl::Status segment;                   // making a sealed one, and another's look into it
  absl::Status socket;                    // a local connection, and a message with a file over it
  std::optional<uint64_t> socket_buffer;  // bytes; net.core.wmem_max
  uint64_t longest_name = 0;              // bytes, of a local name
};

// Makes a segment and a connection of its own.
SharedMemoryFacts LookAtSharedMemory(const SystemFiles& files);

// `host`: by which others know the processes of this machine; a local name has it in it. Without
// shared memory a job uses gRPC: none of this fails one.
Findings CheckSharedMemory(const SharedMemoryFacts& facts, const std::string& host);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_SHARED_MEMORY_CHECK_H_
