#include "client/parley/top_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/parley/progress.h"
#include "client/parley/units.h"

namespace parley {
namespace {

constexpr absl::Duration kLate = absl::Seconds(3);          // an answer of the coordinator
constexpr absl::Duration kLeastSilence = absl::Seconds(5);  // that is worth a word
constexpr double kMoreThanOthers = 4;
constexpr int kLeastBar = 12;
constexpr int kLongestBar = 60;

// A worker's, in the order of a step.
struct StepPart {
  const char* phase;
  char sign;
};
constexpr std::array<StepPart, 6> kStepParts = {{{"data", 'd'},
                                                 {"forward", 'f'},
                                                 {"backward", 'b'},
                                                 {"push", '>'},
                                                 {"wait", '.'},
                                                 {"pull", '<'}}};

enum class Style { kPlain, kBold, kRed };

// Lines of at most so many columns.
class Page {
 public:
  explicit Page(const TopPage& page) : page_(page) {}

  int columns() const { return page_.columns; }

  void Add(std::string line, Style style = Style::kPlain) {
    for (char& c : line) {
      if (absl::ascii_iscntrl(c)) c = ' ';  // what a member says of itself draws nothing
    }
    absl::StripTrailingAsciiWhitespace(&line);
    if (line.size() > static_cast<size_t>(std::max(page_.columns, 0))) {
      line.resize(std::max(page_.columns, 0));
    }
    lines_.push_back({std::move(line), style});
  }

  std::string Text() {
    const auto rows = static_cast<size_t>(std::max(page_.rows, 0));
    if (rows != 0 && lines_.size() > rows) {
      const size_t hidden = lines_.size() - rows + 1;
      lines_.resize(rows - 1);
      Add(absl::StrCat("... and ", hidden, " lines more"));
    }
    std::string text;
    for (const Line& line : lines_) {
      const bool styled = page_.colour && line.style != Style::kPlain;
      if (styled) text += line.style == Style::kBold ? "\x1b[1m" : "\x1b[31m";
      absl::StrAppend(&text, line.text, styled ? "\x1b[0m" : "", "\n");
    }
    return text;
  }

 private:
  struct Line {
    std::string text;
    Style style;
  };
  const TopPage page_;
  std::vector<Line> lines_;
};

std::string NameOf(const Member& member) {
  return absl::StrCat(absl::AsciiStrToLower(Role_Name(member.role())), "-", member.ordinal());
}

std::string CommaSeparated(const std::map<std::string, absl::Duration>& silent) {
  return absl::StrJoin(silent, ", ", [](std::string* out, const auto& one) {
    absl::StrAppend(out, one.first, " for ", DurationText(one.second));
  });
}

void AddJob(const TopFrame& frame, Page& page) {
  const GetStatusReply& status = frame.status;
  page.Add(absl::StrFormat("%s  %s  trained for %s  generation %d  job epoch %d  view %d",
                           status.job(), absl::AsciiStrToLower(Phase_Name(status.phase())),
                           DurationText(absl::Seconds(status.seconds_training())),
                           status.generation(), status.job_epoch(), status.view_epoch()),
           Style::kBold);
  page.Add(ProgressBar(status, frame.left, page.columns()));
  if (frame.status_age >= kLate) {
    page.Add(absl::StrCat("the coordinator has not answered for ", DurationText(frame.status_age),
                          ": what follows is as it was then"),
             Style::kRed);
  }
  if (status.has_cause())
    page.Add(absl::StrCat("first cause  ", status.cause().text()), Style::kRed);
  if (!status.preemption().empty()) {
    page.Add(absl::StrCat("told to end  ", status.preemption()), Style::kRed);
  }
  if (!status.what_is_missing().empty()) {
    page.Add(absl::StrCat("missing      ", status.what_is_missing()), Style::kRed);
  }
  if (AbsentWorkers(status) != 0) {
    page.Add(absl::StrCat("wanted       ", WantedText(status)), Style::kRed);
  }
  if (const auto silent = SilentMembers(status); !silent.empty()) {
    page.Add(absl::StrCat("silent       ", CommaSeparated(silent)), Style::kRed);
  }
  if (!status.evaluations().empty()) {
    page.Add(absl::StrCat("evaluation   ", EvaluationLine(*status.evaluations().rbegin())));
  }
  page.Add(
      absl::StrCat("checkpoint   ", status.checkpoint_directory().empty()
                                        ? "none yet"
                                        : absl::StrCat("step ", status.checkpoint_step(), " in ",
                                                       status.checkpoint_directory())));
  if (status.checkpoints_failed() != 0) {
    page.Add(absl::StrCat("failed ones  ", status.checkpoints_failed(),
                          "; the last: ", status.checkpoint_error()),
             Style::kRed);
  }
  std::vector<std::string> counts;
  const auto count = [&](uint64_t number, const char* what) {
    if (number != 0) counts.push_back(absl::StrCat(number, " ", what));
  };
  count(status.skipped_steps(), "steps skipped");
  count(status.retried_attempts(), "attempts retried");
  count(status.shards_lost(), "shards lost");
  count(status.steps_lost(), "steps done again");
  if (!counts.empty()) page.Add(absl::StrCat("counts       ", absl::StrJoin(counts, ", ")));
}

std::string Optional(const std::optional<double>& value, int decimals) {
  return value ? absl::StrFormat("%.*f", decimals, *value) : "-";
}

void AddMembers(const TopFrame& frame, Page& page) {
  const GetStatusReply& status = frame.status;
  page.Add("");
  page.Add(absl::StrFormat(
               "%-12s %9s %9s %6s %10s  %s", "MEMBER", "STEP", "HEARD OF", "CPU", "MEMORY",
               absl::StrCat(status.members_size(), " OF ", status.expected_members(), " ARE HERE")),
           Style::kBold);
  const auto silent = SilentMembers(status);
  for (const MemberStatus& member : status.members()) {
    const uint64_t id = member.member().id();
    const std::string name = NameOf(member.member());
    const auto look = frame.looks.find(id);
    const bool known = look != frame.looks.end();
    const auto failed = frame.not_scraped.find(id);
    const bool is_silent = silent.count(name) != 0;
    std::vector<std::string> notes;
    if (member.left()) notes.push_back("has left");
    if (member.drained()) notes.push_back("was told to go");
    if (is_silent) notes.push_back("silent");
    if (failed != frame.not_scraped.end() && !member.left()) {
      notes.push_back(absl::StrCat("no metrics: ", failed->second));
    }
    page.Add(
        absl::StrFormat("%-12s %9d %9s %6s %10s  %s", name, member.step(),
                        absl::StrFormat("%.1f s", member.seconds_since_heartbeat()),
                        known ? Optional(look->second.cpu, 2) : "-",
                        known ? BytesText(static_cast<uint64_t>(look->second.resident_bytes)) : "-",
                        absl::StrJoin(notes, "; ")),
        is_silent ? Style::kRed : Style::kPlain);
  }
}

double PhaseOf(const MemberLook& look, const std::string& phase) {
  const auto found = look.phase_seconds.find(phase);
  return found == look.phase_seconds.end() ? 0 : found->second;
}

// So many signs as `room`, shared out by time: each part ends where its share of the whole ends.
std::string StepBar(const MemberLook& look, double total, int room) {
  std::string bar;
  double until = 0;
  for (const StepPart& part : kStepParts) {
    until += PhaseOf(look, part.phase);
    const double end = total > 0 ? std::round(until / total * room) : 0;
    bar.append(static_cast<size_t>(std::max(0.0, end - static_cast<double>(bar.size()))),
               part.sign);
  }
  return bar;
}

void AddSteps(const TopFrame& frame, Page& page) {
  bool bubbles = false;
  std::vector<const MemberStatus*> workers;
  for (const MemberStatus& member : frame.status.members()) {
    const auto look = frame.looks.find(member.member().id());
    if (member.member().role() != WORKER || look == frame.looks.end()) continue;
    workers.push_back(&member);
    bubbles = bubbles || look->second.bubble.has_value();
  }
  if (workers.empty()) return;
  std::string head = absl::StrFormat("%-12s %8s", "MS OF A STEP", "ALL");
  for (const StepPart& part : kStepParts) {
    absl::StrAppendFormat(&head, " %8s", absl::AsciiStrToUpper(part.phase));
  }
  if (bubbles) absl::StrAppendFormat(&head, " %7s", "BUBBLE");
  const int room = std::min(page.columns() - static_cast<int>(head.size()) - 2, kLongestBar);
  if (room >= kLeastBar) head += "  d f b > . <";
  page.Add("");
  page.Add(head, Style::kBold);
  for (const MemberStatus* worker : workers) {
    const MemberLook& look = frame.looks.at(worker->member().id());
    double total = 0;
    for (const StepPart& part : kStepParts) total += PhaseOf(look, part.phase);
    std::string row = absl::StrFormat("%-12s %8.1f", NameOf(worker->member()), total * 1e3);
    for (const StepPart& part : kStepParts) {
      absl::StrAppendFormat(&row, " %8.1f", PhaseOf(look, part.phase) * 1e3);
    }
    if (bubbles) absl::StrAppendFormat(&row, " %7s", Optional(look.bubble, 3));
    if (room >= kLeastBar) absl::StrAppend(&row, "  ", StepBar(look, total, room));
    page.Add(row);
  }
}

void AddShards(const TopFrame& frame, Page& page) {
  std::vector<std::string> rows;
  for (const MemberStatus& member : frame.status.members()) {
    const auto look = frame.looks.find(member.member().id());
    if (member.member().role() != SHARD || look == frame.looks.end()) continue;
    rows.push_back(absl::StrFormat(
        "%-14s %10.2f %12.2f %10s", NameOf(member.member()), PhaseOf(look->second, "reduce") * 1e3,
        PhaseOf(look->second, "apply") * 1e3, Optional(look->second.staleness, 2)));
  }
  if (rows.empty()) return;
  page.Add("");
  page.Add(absl::StrFormat("%-14s %10s %12s %10s", "MS OF A SHARD", "ADD A PUSH", "APPLY A STEP",
                           "STALENESS"),
           Style::kBold);
  for (const std::string& row : rows) page.Add(row);
}

}  // namespace

std::map<std::string, absl::Duration> SilentMembers(const GetStatusReply& status) {
  std::vector<double> ages;
  for (const MemberStatus& member : status.members()) {
    if (!member.left()) ages.push_back(member.seconds_since_heartbeat());
  }
  std::map<std::string, absl::Duration> silent;
  if (ages.empty()) return silent;
  // How often they send heartbeats is the job file's matter: the others show it.
  const auto middle = ages.begin() + static_cast<int64_t>((ages.size() - 1) / 2);
  std::nth_element(ages.begin(), middle, ages.end());
  const double limit = std::max(absl::ToDoubleSeconds(kLeastSilence), kMoreThanOthers * *middle);
  for (const MemberStatus& member : status.members()) {
    if (member.left() || member.seconds_since_heartbeat() <= limit) continue;
    silent[NameOf(member.member())] = absl::Seconds(member.seconds_since_heartbeat());
  }
  return silent;
}

std::string TopText(const TopFrame& frame, const TopPage& page) {
  Page drawn(page);
  AddJob(frame, drawn);
  AddMembers(frame, drawn);
  AddSteps(frame, drawn);
  AddShards(frame, drawn);
  return drawn.Text();
}

}  // namespace parley
