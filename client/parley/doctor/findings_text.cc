#include "client/parley/doctor/findings_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace parley {
namespace {

const char* Word(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kWarning:
      return "warn";
    case Severity::kFailure:
      return "FAIL";
  }
  return "";
}

int64_t CountOf(const Findings& findings, Severity severity) {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& finding) { return finding.severity == severity; });
}

}  // namespace

bool AnyFailed(const Findings& findings) { return CountOf(findings, Severity::kFailure) > 0; }

std::string FindingsText(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-4s  %-22s  %s\n", Word(finding.severity), finding.what,
                          finding.found);
    if (finding.severity == Severity::kOk) continue;
    absl::StrAppendFormat(&text, "      %-22s  -> %s\n", "", finding.remedy);
  }
  absl::StrAppendFormat(&text, "\n%d checks: %d ok, %d warnings, %d failed\n", findings.size(),
                        CountOf(findings, Severity::kOk), CountOf(findings, Severity::kWarning),
                        CountOf(findings, Severity::kFailure));
  return text;
}

std::string FindingsJson(const Findings& findings) {
  nlohmann::ordered_json json;
  json["checks"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json check;
    check["check"] = finding.what;
    check["severity"] = finding.severity == Severity::kFailure ? "fail" : Word(finding.severity);
    check["found"] = finding.found;
    check["remedy"] = finding.remedy;
    json["checks"].push_back(std::move(check));
  }
  json["ok"] = CountOf(findings, Severity::kOk);
  json["warnings"] = CountOf(findings, Severity::kWarning);
  json["failures"] = CountOf(findings, Severity::kFailure);
  // A path that is no UTF-8 is the user's; it must not throw.
  return absl::StrCat(json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

}  // namespace parley
