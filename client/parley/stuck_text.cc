#include "client/parley/stuck_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace parley {
namespace {

struct Row {
  std::string who, waits_for, since, time, step, what;
};

std::string RootCauseText(const StuckReport& report) {
  if (!report.ended.empty()) return report.ended;
  if (!report.causes.empty()) return report.causes.front().text;
  return absl::StrCat("none: nothing waits for longer than ",
                      absl::FormatDuration(report.longer_than), ", and all answer");
}

const char* KindName(RootCause::Kind kind) {
  switch (kind) {
    case RootCause::Kind::kSilent:
      return "silent";
    case RootCause::Kind::kAbsent:
      return "absent";
    case RootCause::Kind::kCycle:
      return "cycle";
    case RootCause::Kind::kWorking:
      return "working";
    case RootCause::Kind::kUntold:
      return "untold";
    case RootCause::Kind::kIdle:
      return "idle";
  }
  return "";
}

std::vector<std::string> Names(const std::vector<Place>& places) {
  std::vector<std::string> names;
  for (const Place& place : places) names.push_back(PlaceName(place));
  return names;
}

std::vector<std::string> NamesOn(const Wait& wait) {
  std::vector<std::string> names;
  for (const WaitedFor& on : wait.on()) names.push_back(PlaceName({on.role(), on.ordinal()}));
  return names;
}

Row RowOf(const StuckReport& report, const AskedProcess& process, double seconds) {
  Row row;
  row.who = PlaceName(process.place);
  row.waits_for = row.since = row.time = row.step = "-";
  if (seconds < 0) return row;
  row.since =
      absl::FormatTime("%H:%M:%E1SZ", report.now - absl::Seconds(seconds), absl::UTCTimeZone());
  row.time = absl::StrFormat("%.1f s", seconds);
  return row;
}

std::vector<Row> Rows(const StuckReport& report) {
  std::vector<Row> rows;
  for (const AskedProcess& process : report.processes) {
    if (process.answer != AskedProcess::Answer::kTold) {
      Row& row = rows.emplace_back(RowOf(report, process, process.silent_for));
      row.what = absl::StrCat(process.answer == AskedProcess::Answer::kSilent
                                  ? "does not answer: "
                                  : "cannot say what it waits for: ",
                              process.error);
      continue;
    }
    if (process.waits.empty()) {
      rows.push_back(RowOf(report, process, -1));
      rows.back().step = absl::StrCat(process.step);
      rows.back().what = "waits for nothing";
    }
    for (const Wait& wait : process.waits) {
      Row& row = rows.emplace_back(RowOf(report, process, wait.seconds()));
      const std::vector<std::string> on = NamesOn(wait);
      if (!on.empty()) row.waits_for = absl::StrJoin(on, ",");
      if (wait.step() != 0) row.step = absl::StrCat(wait.step());
      row.what = wait.what();
    }
  }
  return rows;
}

}  // namespace

std::string StuckText(const StuckReport& report) {
  std::vector<Row> rows = Rows(report);
  std::string text;
  if (!rows.empty()) {
    rows.insert(rows.begin(), Row{"WHO", "WAITS FOR", "SINCE", "TIME", "STEP", "WHAT"});
    size_t who = 0;
    size_t waits_for = 0;
    for (const Row& row : rows) {
      who = std::max(who, row.who.size());
      waits_for = std::max(waits_for, row.waits_for.size());
    }
    for (const Row& row : rows) {
      absl::StrAppendFormat(&text, "%-*s  %-*s  %11s  %9s  %7s  %s\n", static_cast<int>(who),
                            row.who, static_cast<int>(waits_for), row.waits_for, row.since,
                            row.time, row.step, row.what);
    }
    text += "\n";
  }
  for (size_t i = 1; i < report.causes.size(); ++i) {
    absl::StrAppend(&text, "besides: ", report.causes[i].text, "\n");
  }
  return absl::StrCat(text, "root cause: ", RootCauseText(report), "\n");
}

std::string StuckJson(const StuckReport& report) {
  nlohmann::json json = {{"job", report.job},
                         {"phase", report.phase},
                         {"longer_than_seconds", absl::ToDoubleSeconds(report.longer_than)},
                         {"processes", nlohmann::json::array()},
                         {"causes", nlohmann::json::array()},
                         {"root_cause", RootCauseText(report)}};
  for (const AskedProcess& process : report.processes) {
    nlohmann::json waits = nlohmann::json::array();
    for (const Wait& wait : process.waits) {
      waits.push_back({{"what", wait.what()},
                       {"on", NamesOn(wait)},
                       {"seconds", wait.seconds()},
                       {"seconds_left", wait.seconds_left()},
                       {"step", wait.step()}});
    }
    json["processes"].push_back({{"who", PlaceName(process.place)},
                                 {"name", process.name},
                                 {"answers", process.answer == AskedProcess::Answer::kTold},
                                 {"error", process.error},
                                 {"seconds_silent", std::max(0.0, process.silent_for)},
                                 {"step", process.step},
                                 {"waits", std::move(waits)}});
  }
  for (const RootCause& cause : report.causes) {
    json["causes"].push_back({{"kind", KindName(cause.kind)},
                              {"who", Names(cause.places)},
                              {"waiting", Names(cause.waiting)},
                              {"seconds", cause.seconds},
                              {"text", cause.text}});
  }
  // What a process says of itself need not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace parley
