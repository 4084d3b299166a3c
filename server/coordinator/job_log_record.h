#ifndef PARLEY_SERVER_COORDINATOR_JOB_LOG_RECORD_H_
#define PARLEY_SERVER_COORDINATOR_JOB_LOG_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// A record of the coordinator's log as bytes: one line of text with the length and the CRC-32 of
// what follows and a CRC-32 of the line itself, then the serialised CoordinatorRecord.

// The bytes of the longest record that is written and read.
inline constexpr uint64_t kMaxRecordBytes = 64 << 20;

// The present format, for CoordinatorRecord.format.
inline constexpr uint32_t kRecordFormat = 1;

std::string EncodeRecord(const CoordinatorRecord& record);

// DATA_LOSS, with what was found (the caller names the file), unless the bytes are what
// EncodeRecord made, all of it and nothing more; FAILED_PRECONDITION where a newer parley made
// them.
absl::StatusOr<CoordinatorRecord> DecodeRecord(const std::string& bytes);

// Whether the bytes are fewer than were to be written: a writer that was interrupted leaves such a
// file, damage to a whole one does not.
bool IsTorn(const std::string& bytes);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_JOB_LOG_RECORD_H_
