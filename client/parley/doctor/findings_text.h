#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_FINDINGS_TEXT_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_FINDINGS_TEXT_H_

#include <string>

#include "client/parley/doctor/finding.h"

namespace parley {

// Whether any check failed; warnings are none.
bool AnyFailed(const Findings& findings);

// For people: a line for each check, what to do below those that are not ok, and how many there are
// of each.
std::string FindingsText(const Findings& findings);

// For scripts: {"checks": [{"check", "severity": "ok" | "warn" | "fail", "found", "remedy"}], "ok",
// "warnings", "failures"}.
std::string FindingsJson(const Findings& findings);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_FINDINGS_TEXT_H_
