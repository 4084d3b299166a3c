#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_FINDING_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_FINDING_H_

#include <string>
#include <utility>
#include <vector>

namespace parley {

enum class Severity {
  kOk,
  kWarning,  // a job runs all the same, though more slowly or with less certainty
  kFailure,  // a job would end with this, now or later
};

// What one check of `parley doctor` has found.
struct Finding {
  Severity severity = Severity::kOk;
  std::string what;    // was looked at; scripts rely on it
  std::string found;   // with figures and units
  std::string remedy;  // what to do; empty where all is well
};

inline Finding Fine(std::string what, std::string found) {
  return {Severity::kOk, std::move(what), std::move(found), ""};
}
inline Finding Warning(std::string what, std::string found, std::string remedy) {
  return {Severity::kWarning, std::move(what), std::move(found), std::move(remedy)};
}
inline Finding Failure(std::string what, std::string found, std::string remedy) {
  return {Severity::kFailure, std::move(what), std::move(found), std::move(remedy)};
}

using Findings = std::vector<Finding>;

inline void Append(Findings& all, Findings more) {
  for (Finding& finding : more) all.push_back(std::move(finding));
}

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_FINDING_H_
