#include "tests/simulation/references/reference_faults.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace parley {
namespace {

constexpr const char* kTypeNames[] = {"Open", "Renew", "Leave", "Call", "Fork", "Drop", "Fetch"};
constexpr const char* kMessageFaultNames[] = {
    "lost",    "answer lost",          "twice",        "late",
    "cut off", "callee killed before", "killed after", "caller killed"};
constexpr const char* kStateNames[] = {"holds",      "is held",        "connecting", "call open",
                                       "fetch open", "arguments open", "runs"};
constexpr const char* kProcessFaultNames[] = {"killed", "paused shortly", "paused past the lease",
                                              "isolated"};

// Nobody waits for the answer of a Leave, so nothing can happen to it, or to who sent it.
bool CanBe(size_t fault, size_t type) {
  return type != kLeave || (fault != kAnswerLost && fault != kCallerKilled);
}

template <size_t kRows, size_t kColumns>
void AddTo(std::array<std::array<uint64_t, kColumns>, kRows>& to,
           const std::array<std::array<uint64_t, kColumns>, kRows>& from) {
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t column = 0; column < kColumns; ++column) to[row][column] += from[row][column];
  }
}

}  // namespace

void ReferenceCoverage::Add(const ReferenceCoverage& other) {
  AddTo(messages, other.messages);
  AddTo(states, other.states);
}

uint64_t ReferenceCoverage::faults() const {
  uint64_t sum = 0;
  for (const auto& row : messages) {
    for (const uint64_t count : row) sum += count;
  }
  // A process is in several states at once, always in the first one or none: counted once.
  for (const auto& row : states) sum += row[kHolds];
  return sum;
}

std::string ReferenceCoverage::Table() const {
  std::string table = absl::StrFormat("%-22s", "");
  for (const char* name : kTypeNames) absl::StrAppendFormat(&table, "%10s", name);
  for (size_t fault = 0; fault < kMessageFaults; ++fault) {
    absl::StrAppendFormat(&table, "\n%-22s", kMessageFaultNames[fault]);
    for (size_t type = 0; type < kMessageTypes; ++type) {
      absl::StrAppendFormat(&table, "%10s",
                            CanBe(fault, type) ? absl::StrCat(messages[fault][type]) : "-");
    }
  }
  absl::StrAppendFormat(&table, "\n%-22s", "");
  for (const char* name : kStateNames) absl::StrAppendFormat(&table, "%15s", name);
  for (size_t fault = 0; fault < kProcessFaults; ++fault) {
    absl::StrAppendFormat(&table, "\n%-22s", kProcessFaultNames[fault]);
    for (const uint64_t count : states[fault]) absl::StrAppendFormat(&table, "%15d", count);
  }
  return table;
}

std::vector<std::string> ReferenceCoverage::Missing() const {
  std::vector<std::string> missing;
  for (size_t fault = 0; fault < kMessageFaults; ++fault) {
    for (size_t type = 0; type < kMessageTypes; ++type) {
      if (messages[fault][type] == 0 && CanBe(fault, type)) {
        missing.push_back(absl::StrCat(kMessageFaultNames[fault], ": ", kTypeNames[type]));
      }
    }
  }
  for (size_t fault = 0; fault < kProcessFaults; ++fault) {
    for (size_t state = 0; state < kProcessStates; ++state) {
      if (states[fault][state] == 0) {
        missing.push_back(absl::StrCat(kProcessFaultNames[fault], ": ", kStateNames[state]));
      }
    }
  }
  return missing;
}

}  // namespace parley
