#include "tests/simulation/fault_coverage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace parley {

void FaultCoverage::Met(std::string_view fault, const std::vector<std::string_view>& states) {
  auto row = counts_.find(fault);
  if (row == counts_.end()) row = counts_.try_emplace(std::string(fault)).first;
  for (const std::string_view state : states) {
    const auto cell = row->second.find(state);
    if (cell == row->second.end()) {
      row->second.emplace(state, 1);
    } else {
      ++cell->second;
    }
  }
}

void FaultCoverage::Add(const FaultCoverage& other) {
  for (const auto& [fault, row] : other.counts_) {
    for (const auto& [state, count] : row) counts_[fault][state] += count;
  }
}

uint64_t FaultCoverage::Count(std::string_view fault, std::string_view state) const {
  const auto row = counts_.find(fault);
  if (row == counts_.end()) return 0;
  const auto cell = row->second.find(state);
  return cell == row->second.end() ? 0 : cell->second;
}

std::string FaultCoverage::Table(const std::vector<std::string_view>& faults,
                                 const std::vector<std::string_view>& states) const {
  std::string table = absl::StrFormat("  %-26s", "");
  for (const std::string_view state : states) absl::StrAppendFormat(&table, " %*s", kWidth, state);
  absl::StrAppend(&table, "\n");
  for (const std::string_view fault : faults) {
    absl::StrAppendFormat(&table, "  %-26s", fault);
    for (const std::string_view state : states) {
      const uint64_t count = Count(fault, state);
      const bool never = count == 0 && !WhyNever(fault, state).empty();
      absl::StrAppendFormat(&table, " %*s", kWidth, never ? "-" : absl::StrCat(count));
    }
    absl::StrAppend(&table, "\n");
  }
  return table;
}

std::vector<std::string> FaultCoverage::Empty(const std::vector<std::string_view>& faults,
                                              const std::vector<std::string_view>& states) const {
  std::vector<std::string> empty;
  for (const std::string_view fault : faults) {
    for (const std::string_view state : states) {
      if (Count(fault, state) != 0 || !WhyNever(fault, state).empty()) continue;
      empty.push_back(std::string(fault) + " / " + std::string(state));
    }
  }
  return empty;
}

std::string_view WhyNever(std::string_view fault, std::string_view state) {
  const bool loses = fault == kStoppedLong || fault == kKilled || fault == kIsolated;
  if ((loses || fault == kStarted) && state == kBeforeTraining) {
    return "a worker that is lost before there is a view ends the job";
  }
  if (fault == kScaled && state == kAfterTraining) return "it is refused then";
  if (fault == kStarted && state == kAfterTraining)
    return "nobody is started for a job that is over";
  const bool of_no_worker = fault == kCoordinatorKilled || fault == kCoordinatorStopped ||
                            fault == kCoordinatorCutOff || fault == kRival || fault == kDiskFails ||
                            fault == kShardKilled || fault == kShardStarted;
  if (of_no_worker && (state == kJoining || state == kPulling || state == kComputing ||
                       state == kCompleting || state == kEvaluating || state == kFinishing)) {
    return "it concerns no worker more than the others";
  }
  if (fault == kCoordinatorCutOff && state == kBeforeTraining) {
    return "one that hears nobody ends a job that is still gathering";
  }
  if (fault == kStarted && (state == kJoining || state == kPulling || state == kComputing ||
                            state == kCompleting || state == kEvaluating || state == kFinishing)) {
    return "a worker that starts has done nothing yet";
  }
  return "";
}

}  // namespace parley
