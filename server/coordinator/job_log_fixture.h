#ifndef PARLEY_SERVER_COORDINATOR_JOB_LOG_FIXTURE_H_
#define PARLEY_SERVER_COORDINATOR_JOB_LOG_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "common/memory_file_system.h"
#include "server/coordinator/job_log.h"

namespace parley {

inline constexpr absl::Time kLogTime = absl::UnixEpoch();
inline constexpr char kLogFolder[] = "/job/log";

// A state that its step tells apart from others.
inline CoordinatorState StateAt(uint64_t step) {
  CoordinatorState state;
  state.set_phase(TRAINING);
  state.set_job_epoch(1);
  state.mutable_progress()->mutable_at()->set_step(step);
  Member* member = state.add_members()->mutable_member();
  member->set_id(step);
  member->set_address("127.0.0.1:4567");
  return state;
}

inline uint64_t StepOf(const JobLog& log) {
  return log.last() ? log.last()->state().progress().at().step() : 0;
}

inline std::string RecordPath(uint64_t number) {
  return absl::StrFormat("%s/%020d.record", kLogFolder, number);
}

// A job's directory in memory.
class JobLogTest : public testing::Test {
 protected:
  JobLogTest() { MakeJobDirectory(files_); }

  static void MakeJobDirectory(MemoryFileSystem& files) {
    EXPECT_TRUE(files.CreateDirectories("/job").ok());
    EXPECT_TRUE(files.SyncDirectory("/").ok());
  }

  static absl::StatusOr<JobLog> Open(FileSystem& files) {
    return JobLog::Open(files, kLogFolder, "digits");
  }

  JobLog Opened() {
    auto log = Open(files_);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }

  // The log of a coordinator that has taken the rule with state 1 and gone on to `step`.
  JobLog Ruling(const std::string& address, uint64_t step = 1) {
    JobLog log = Opened();
    EXPECT_TRUE(log.Take(address, StateAt(1), kLogTime).ok());
    for (uint64_t next = 2; next <= step; ++next) {
      EXPECT_TRUE(log.Append(StateAt(next), kLogTime).ok());
    }
    return log;
  }

  std::string Names() {
    auto names = files_.List(kLogFolder);
    EXPECT_TRUE(names.ok()) << names.status();
    std::string all;
    for (const std::string& name : *names) absl::StrAppend(&all, name, " ");
    return all;
  }

  void WriteAs(const std::string& path, const std::string& content) {
    files_.Remove(path).IgnoreError();  // another file, not the old one's content
    EXPECT_TRUE(WriteFileAtomically(files_, path, content).ok());
  }

  MemoryFileSystem files_;
};

// Which coordinator was told that a number is its own: no number twice, and none that is older than
// another generation's. Called by one thread at a time.
class Ledger {
 public:
  void Add(const JobLog& log) {
    const uint64_t number = log.last()->number();
    const uint64_t generation = log.generation();
    EXPECT_TRUE(told_.insert({number, generation}).second) << number;
    for (const auto& [other, its_generation] : told_) {
      EXPECT_FALSE(other == number && its_generation != generation)
          << "number " << number << " belongs to generations " << generation << " and "
          << its_generation;
      EXPECT_FALSE(other < number && its_generation > generation)
          << "generation " << generation << " got number " << number << " after generation "
          << its_generation << " had got " << other;
    }
  }

 private:
  std::set<std::pair<uint64_t, uint64_t>> told_;  // (number, generation)
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_LOG_FIXTURE_H_
