#include "common/job/field_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// Comparisons are written so that a NaN fails them.
bool IsPositive(double value) { return value > 0 && std::isfinite(value); }
bool IsNotNegative(double value) { return value >= 0 && std::isfinite(value); }
bool IsBelowOne(double value) { return value >= 0 && value < 1; }

}  // namespace

void FieldCheck::Require(bool right, std::string_view field, std::string_view problem) {
  if (!right && first_.ok()) first_ = source_.Error(field, problem);
}

void FieldCheck::Positive(double value, std::string_view field) {
  Require(IsPositive(value), field, "must be a number above 0");
}

void FieldCheck::NotNegative(double value, std::string_view field) {
  Require(IsNotNegative(value), field, "must be a number of at least 0");
}

void FieldCheck::BelowOne(double value, std::string_view field) {
  Require(IsBelowOne(value), field, "must be at least 0 and below 1");
}

void FieldCheck::Share(double value, std::string_view field) {
  Require(value > 0 && value <= 1, field, "must be above 0 and at most 1");
}

void FieldCheck::Between(uint32_t least, uint32_t value, uint32_t most, std::string_view field) {
  Require(value >= least && value <= most, field,
          absl::StrCat("must be at least ", least, " and at most ", most, ", not ", value));
}

void FieldCheck::DurationIsRight(const std::string& text, absl::Duration least, absl::Duration most,
                                 std::string_view field) {
  absl::Duration duration;
  const bool parsed = absl::ParseDuration(text, &duration);
  Require(parsed, field,
          absl::StrCat("'", text, "' is no duration, such as \"10s\", \"500ms\" or \"2m\""));
  Require(!parsed || (duration >= least && duration <= most), field,
          absl::StrCat("must be at least ", absl::FormatDuration(least), " and at most ",
                       absl::FormatDuration(most), ", not ", text));
}

}  // namespace parley
