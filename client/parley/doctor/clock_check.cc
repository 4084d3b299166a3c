#include "client/parley/doctor/clock_check.h"

#include <sys/timex.h>
#include <time.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/coordinator/job_log_record.h"

namespace parley {
namespace {

constexpr char kClock[] = "clock";
constexpr char kMonotonic[] = "monotonic clock";
// Logs and metrics of machines whose clocks differ by more do not fit together.
constexpr absl::Duration kUnpleasant = absl::Seconds(1);
// Certificates and Slurm's credentials are refused, and Prometheus' series have holes.
constexpr absl::Duration kWrong = absl::Minutes(1);
constexpr int kReadings = 10'000;
// A coordinator writes a record as soon as it has its content; what is beyond is a slow disk.
constexpr absl::Duration kRecordTakes = absl::Seconds(1);

constexpr char kSynchronise[] =
    "timedatectl set-ntp true, or install and start chrony (apt install chrony; chronyc tracking "
    "shows how it stands)";

bool MonotonicGoesBack() {
  timespec last{};
  clock_gettime(CLOCK_MONOTONIC, &last);
  for (int i = 0; i < kReadings; ++i) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (absl::DurationFromTimespec(now) < absl::DurationFromTimespec(last)) return true;
    last = now;
  }
  return false;
}

std::string SecondsText(absl::Duration duration) {
  return absl::StrFormat("%.3g s", absl::ToDoubleSeconds(absl::AbsDuration(duration)));
}

}  // namespace

ClockFacts LookAtClock() {
  ClockFacts facts;
  timex state{};  // modes 0: only asks
  const int answer = adjtimex(&state);
  facts.told = answer >= 0;
  facts.synchronised = facts.told && (state.status & STA_UNSYNC) == 0;
  facts.largest_error = absl::Microseconds(state.maxerror);
  facts.goes_back = MonotonicGoesBack();
  return facts;
}

Findings CheckClock(const ClockFacts& facts) {
  Findings findings;
  if (!facts.told) {
    findings.push_back(Warning(kClock, "the kernel does not say whether it is synchronised",
                               "a container may not be allowed to ask: look on the machine itself "
                               "(timedatectl)"));
  } else if (!facts.synchronised) {
    findings.push_back(
        Warning(kClock, "nobody synchronises it (the kernel's STA_UNSYNC)", kSynchronise));
  } else {
    findings.push_back(Fine(kClock, absl::StrCat("synchronised, at most ",
                                                 SecondsText(facts.largest_error), " wrong")));
  }
  if (facts.goes_back) {
    findings.push_back(Failure(
        kMonotonic, "went back while it was read",
        "the machine's time source is broken: choose another one of "
        "/sys/devices/system/clocksource/clocksource0/available_clocksource, and tell whoever runs "
        "the machine"));
  } else {
    findings.push_back(
        Fine(kMonotonic, absl::StrCat("never went back in ", kReadings, " readings")));
  }
  return findings;
}

Finding CheckSkew(const std::string& what, const std::string& whose, const ClockSkew& skew) {
  const absl::Duration size = absl::AbsDuration(skew.ahead);
  if (size <= kUnpleasant + skew.uncertain) {
    return Fine(what, absl::StrCat("that of ", whose, " and this machine's differ by less than ",
                                   SecondsText(kUnpleasant + skew.uncertain)));
  }
  const std::string found =
      absl::StrCat("that of ", whose, " is ", SecondsText(skew.ahead),
                   skew.ahead > absl::ZeroDuration() ? " ahead of" : " behind", " this machine's");
  const std::string remedy =
      absl::StrCat("synchronise both, this machine and ", whose, ": ", kSynchronise);
  return size > kWrong + skew.uncertain ? Failure(what, found, remedy)
                                        : Warning(what, found, remedy);
}

std::optional<ClockSkew> CoordinatorSkew(FileSystem& files, const std::string& directory,
                                         const ClockSkew& server) {
  const std::string log = directory + "/log";
  const auto names = files.List(log);
  if (!names.ok()) return std::nullopt;
  for (auto name = names->rbegin(); name != names->rend(); ++name) {
    if (!absl::EndsWith(*name, ".record")) continue;
    const std::string path = absl::StrCat(log, "/", *name);
    const auto bytes = ReadWholeFile(files, path, kMaxRecordBytes);
    const auto info = files.Info(path);
    if (!bytes.ok() || !info.ok()) continue;
    const auto record = DecodeRecord(*bytes);
    if (!record.ok()) continue;
    const absl::Time written = absl::FromUnixMicros(record->written_unix_micros());
    return ClockSkew{written - info->modified + server.ahead, server.uncertain + kRecordTakes};
  }
  return std::nullopt;
}

}  // namespace parley
