#ifndef PARLEY_SERVER_COORDINATOR_JOB_LOG_H_
#define PARLEY_SERVER_COORDINATOR_JOB_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// The durable state of a job's coordinator, and the proof that it is the only one: a folder of
// numbered records, each with the whole state, each made by the exclusive creation of the next
// number. Whoever finds the number taken has lost the rule and stops. No locks, so it works on
// cluster file systems; docs/job_log.md describes the files.
//
// A process opens the log, which writes nothing; takes the rule when Succession (succession.h) lets
// it; and then appends each new state before it tells anybody of it. It is used by one thread at a
// time: the coordinator's owner calls it, outside the core's lock, since it waits for the disk.
class JobLog {
 public:
  // The newest record. `files` must outlive the log. `directory` is the log's own, absolute; one
  // that does not exist is an empty log. The codes of FileSystem, and
  //   DATA_LOSS            the newest record is damaged: the file, what was found, what to do
  //   INVALID_ARGUMENT     the log of another job
  //   FAILED_PRECONDITION  written by a newer parley
  // A record whose creation was interrupted, so that nobody was ever told that it is there, is
  // passed over.
  static absl::StatusOr<JobLog> Open(FileSystem& files, std::string directory, std::string job);

  // The newest record that was found or made; none in an empty log.
  const std::optional<CoordinatorRecord>& last() const { return last_; }
  // Of the next record.
  uint64_t next_number() const { return next_; }
  // Of this coordinator; 0 before Take.
  uint64_t generation() const { return generation_; }

  // Becomes the coordinator of the job, reached at `address` (host:port), with this first state.
  // Returns its generation, one above the last. May be repeated after an error of the disk. The
  // codes of Append.
  absl::StatusOr<uint64_t> Take(const std::string& address, const CoordinatorState& state,
                                absl::Time now);

  // Makes the next record. After OK it is there whatever happens, and whoever opens the log finds
  // it or a later one.
  //   ABORTED              another coordinator has the rule, with its generation and address: stop
  //                        at once; every further call answers so too
  //   FAILED_PRECONDITION  before Take
  //   INVALID_ARGUMENT     larger than kMaxRecordBytes
  //   the codes of FileSystem: not known to be durable, though a later Open may find it; to be
  //   repeated, with this state or a newer one
  absl::Status Append(const CoordinatorState& state, absl::Time now);

  // ABORTED, as Append, if another coordinator has the rule. For one that has nothing to append.
  absl::Status CheckStillRules();

  // So many records are kept: the last ones.
  static constexpr uint64_t kKept = 8;
  // A temporary file that was last written so long before a record is what a crash has left. Both
  // times are the file system's, so no machine's clock matters. (If its process lives after all, it
  // finds it gone, and the number taken.)
  static constexpr absl::Duration kAbandonedAfter = absl::Minutes(10);

 private:
  JobLog(FileSystem& files, std::string directory, std::string job);

  std::string PathOf(uint64_t number) const;
  // The numbers in the folder, rising.
  absl::StatusOr<std::vector<uint64_t>> Numbers() const;
  absl::StatusOr<CoordinatorRecord> Read(uint64_t number) const;
  // Reads the newest record into last_. NOT_FOUND if it went away meanwhile.
  absl::Status ReadNewest();
  // Whether the record is torn and its maker has never finished it.
  bool IsUnfinished(uint64_t number) const;

  absl::Status Write(CoordinatorRecord record);
  // Sets why this coordinator has lost, and returns it. `number`: a record that is another's.
  absl::Status Lose(uint64_t number);
  void RemoveOld(const std::vector<uint64_t>& numbers);
  void RemoveAbandoned();

  FileSystem* files_;
  std::string directory_;
  std::string job_;
  uint64_t writer_;  // this process
  std::optional<CoordinatorRecord> last_;
  uint64_t next_ = 1;
  uint64_t generation_ = 0;
  std::string address_;
  absl::Status lost_;
  bool removed_abandoned_ = false;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_LOG_H_
