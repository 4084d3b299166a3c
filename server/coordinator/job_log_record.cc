#include "server/coordinator/job_log_record.h"

#include <zlib.h>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace parley {
namespace {

// `parley-record LENGTH CRC LINE_CRC\n`, all numbers of fixed width.
constexpr size_t kLengthAt = 14;
constexpr size_t kLengthDigits = 20;
constexpr size_t kLineCrcAt = kLengthAt + kLengthDigits + 1 + 8 + 1;
constexpr size_t kLineBytes = kLineCrcAt + 8 + 1;

std::string Sum(const char* bytes, size_t size) {
  return absl::StrFormat("%08x", crc32_z(0, reinterpret_cast<const Bytef*>(bytes), size));
}

std::string Line(uint64_t length, const std::string& sum) {
  const std::string start = absl::StrFormat("parley-record %020d %s ", length, sum);
  return absl::StrCat(start, Sum(start.data(), start.size()), "\n");
}

}  // namespace

std::string EncodeRecord(const CoordinatorRecord& record) {
  const std::string body = record.SerializeAsString();
  return Line(body.size(), Sum(body.data(), body.size())) + body;
}

absl::StatusOr<CoordinatorRecord> DecodeRecord(const std::string& bytes) {
  if (bytes.size() < kLineBytes) {
    return absl::DataLossError(absl::StrCat("has ", bytes.size(), " bytes, fewer than its header"));
  }
  const std::string line = bytes.substr(0, kLineBytes);
  const size_t length = bytes.size() - kLineBytes;
  const std::string sum = Sum(bytes.data() + kLineBytes, length);
  // What the line has to be, byte for byte: no damage to it can be read as another one.
  if (line != Line(length, sum)) {
    const std::string start = line.substr(0, kLineCrcAt);
    if (line != absl::StrCat(start, Sum(start.data(), start.size()), "\n")) {
      return absl::DataLossError("its header (bytes 0 to 52) is damaged");
    }
    return absl::DataLossError(
        absl::StrCat("bytes ", kLineBytes, " to ", bytes.size(), " have the CRC-32 ", sum,
                     "; its header tells of ", line.substr(kLengthAt, kLengthDigits),
                     " bytes with the CRC-32 ", line.substr(kLengthAt + kLengthDigits + 1, 8)));
  }
  CoordinatorRecord record;
  if (!record.ParseFromArray(bytes.data() + kLineBytes, static_cast<int>(length))) {
    return absl::DataLossError("its sum is right, but it is not a record of a coordinator");
  }
  if (record.format() > kRecordFormat) {
    return absl::FailedPreconditionError(absl::StrCat("was written by a newer parley (format ",
                                                      record.format(), "; this one reads ",
                                                      kRecordFormat, "): use that one"));
  }
  if (record.format() != kRecordFormat) return absl::DataLossError("tells of no format");
  return record;
}

bool IsTorn(const std::string& bytes) {
  if (bytes.size() < kLineBytes) return true;
  const std::string start = bytes.substr(0, kLineCrcAt);
  uint64_t length = 0;
  return bytes.compare(kLineCrcAt, 9, Sum(start.data(), start.size()) + "\n") == 0 &&
         absl::SimpleAtoi(start.substr(kLengthAt, kLengthDigits), &length) &&
         bytes.size() - kLineBytes < length;
}

}  // namespace parley
