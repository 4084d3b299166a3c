#ifndef PARLEY_SERVER_COORDINATOR_JOB_DIRECTORY_H_
#define PARLEY_SERVER_COORDINATOR_JOB_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "proto/types.pb.h"

namespace parley {

// The job's directory: address file, targets.json, and the records that make one coordinator its
// owner.
//
// A record is a file generation-00000001, -00000002, ...: made whole under another name, synced,
// and then linked to its number, which fails where the number is taken. It names the address where
// its maker listens already. So whoever finds the newest record can ask there, and of two who start
// at once only one gets the number. Used by main, on its thread.
class JobDirectory {
 public:
  // Whether a coordinator of this job answers at an address: OK if so; Unavailable, or whatever
  // else, if not.
  using Ask = std::function<absl::Status(const std::string& address)>;

  // `path`: absolute. `files` must outlive the object.
  JobDirectory(FileSystem& files, std::string path, Ask ask);

  // ALREADY_EXISTS, with the address, if a coordinator of this job answers at the address file or
  // at the newest record's address. Writes nothing.
  absl::Status CheckNoOwner() const;

  // Makes the directory where it does not exist, and finds out whether it can be written.
  absl::Status Prepare();

  // Becomes the owner, as the generation that is returned. Call it when `address` answers already.
  // ALREADY_EXISTS as CheckNoOwner, and where another one was faster.
  absl::StatusOr<uint64_t> Claim(const std::string& address);

  // Atomically, readers see the old or the new.
  absl::Status WriteAddress(const std::string& address);
  absl::Status WriteTargets(const std::string& content);

  // The address file goes, if it is still this one's.
  void RemoveAddress(const std::string& address);

  // The content of the address file; empty if there is none.
  absl::StatusOr<std::string> ReadAddress() const;

  std::string address_file() const { return path_ + "/coordinator.address"; }
  // Where JobLog keeps its records.
  std::string log_directory() const { return path_ + "/log"; }

 private:
  absl::StatusOr<uint64_t> NewestGeneration() const;  // 0: none
  std::string RecordFile(uint64_t generation) const;
  std::string AddressIn(uint64_t generation) const;  // empty where the record is unreadable
  absl::Status CheckAddress(const std::string& address, const std::string& where) const;

  FileSystem& files_;
  const std::string path_;
  const Ask ask_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_DIRECTORY_H_
