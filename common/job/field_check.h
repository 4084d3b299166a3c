#ifndef PARLEY_COMMON_JOB_FIELD_CHECK_H_
#define PARLEY_COMMON_JOB_FIELD_CHECK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job/job_source.h"

namespace parley {

// Samples of one forward, or forwards of one step, at most.
inline constexpr uint32_t kMostSamples = 1 << 24;

// What must hold of the fields of a job: keeps the first thing that is wrong, with the line where
// the file says it. CheckJob makes one, and the checks of each part of a job file put their
// conditions to it.
class FieldCheck {
 public:
  // `source` must outlive it.
  explicit FieldCheck(const JobSource& source) : source_(source) {}

  const JobConfig& job() const { return source_.job(); }

  // OK while nothing is wrong.
  const absl::Status& first() const { return first_; }

  void Require(bool right, std::string_view field, std::string_view problem);
  void Positive(double value, std::string_view field);
  void NotNegative(double value, std::string_view field);
  void BelowOne(double value, std::string_view field);
  // Of something, more than nothing.
  void Share(double value, std::string_view field);
  void Between(uint32_t least, uint32_t value, uint32_t most, std::string_view field);
  // A finite duration within bounds.
  void DurationIsRight(const std::string& text, absl::Duration least, absl::Duration most,
                       std::string_view field);

 private:
  const JobSource& source_;
  absl::Status first_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_FIELD_CHECK_H_
