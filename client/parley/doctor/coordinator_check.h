#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_COORDINATOR_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_COORDINATOR_CHECK_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/host_network.h"
#include "common/file_system.h"
#include "proto/coordinator.pb.h"

namespace parley {

// The job's coordinator, as a process of this machine would come to it.
struct CoordinatorQuestion {
  std::string coordinator;  // HOST:PORT, or file:PATH
  std::string job;          // the name it must have; empty: whatever job this is
  // GetStatus of a coordinator at HOST:PORT; waits for the answer, for a limited time.
  std::function<absl::StatusOr<GetStatusReply>(const std::string& address)> ask;
};

// Whether its address is known, a connection can be had, and it answers. Each is looked at where
// the one before is well.
Findings CheckCoordinator(const CoordinatorQuestion& question, FileSystem& files,
                          HostNetwork& network);

// The folder of file:PATH, where a coordinator writes its address file: the job's directory. Empty
// for HOST:PORT.
std::string FolderOfAddressFile(const std::string& coordinator);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_COORDINATOR_CHECK_H_
