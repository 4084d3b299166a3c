#include "server/pipeline_stage/schedule/schedule.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace parley {
namespace {

// The letter of a kind in the text, and what is between the two parts of a message.
struct Letters {
  ActionKind kind;
  char letter;
  char direction;  // 0: no message
};
constexpr Letters kLetters[] = {
    {ActionKind::kForward, 'F', 0},
    {ActionKind::kBackward, 'B', 0},
    {ActionKind::kInputGradient, 'I', 0},
    {ActionKind::kWeightGradient, 'W', 0},
    {ActionKind::kUpdate, 'U', 0},
    {ActionKind::kSendActivation, 'A', '>'},
    {ActionKind::kReceiveActivation, 'A', '<'},
    {ActionKind::kSendGradient, 'G', '>'},
    {ActionKind::kReceiveGradient, 'G', '<'},
};

std::optional<Action> ParseAction(absl::string_view word) {
  if (word.empty()) return std::nullopt;
  const size_t sign = word.find_first_of("<>");
  const char direction = sign == absl::string_view::npos ? char{0} : word[sign];
  const size_t dot = word.rfind('.');
  if (dot == absl::string_view::npos || (direction != 0 && dot < sign)) return std::nullopt;
  for (const Letters& letters : kLetters) {
    if (letters.letter != word[0] || letters.direction != direction) continue;
    Action action{letters.kind};
    const size_t end = direction == 0 ? dot : sign;
    if (!absl::SimpleAtoi(word.substr(1, end - 1), &action.part) ||
        !absl::SimpleAtoi(word.substr(dot + 1), &action.microbatch)) {
      return std::nullopt;
    }
    if (direction != 0 && !absl::SimpleAtoi(word.substr(sign + 1, dot - sign - 1), &action.peer)) {
      return std::nullopt;
    }
    return action;
  }
  return std::nullopt;
}

}  // namespace

bool IsCompute(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward ||
         kind == ActionKind::kInputGradient || kind == ActionKind::kWeightGradient;
}

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

bool IsReceive(ActionKind kind) {
  return kind == ActionKind::kReceiveActivation || kind == ActionKind::kReceiveGradient;
}

std::vector<PartEdge> ChainOf(uint32_t parts) {
  std::vector<PartEdge> edges;
  for (uint32_t part = 1; part < parts; ++part) edges.push_back({part - 1, part});
  return edges;
}

std::string ToText(const Action& action) {
  for (const Letters& letters : kLetters) {
    if (letters.kind != action.kind) continue;
    std::string text = absl::StrCat(std::string(1, letters.letter), action.part);
    if (letters.direction != 0) {
      absl::StrAppend(&text, std::string(1, letters.direction), action.peer);
    }
    return absl::StrCat(text, ".", action.microbatch);
  }
  return "?";
}

std::string ToText(const Schedule& schedule) {
  std::string text = absl::StrCat("pipeline of ", schedule.parts, " parts, ", schedule.microbatches,
                                  " microbatches\n");
  for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    absl::StrAppend(&text, "stage ", stage, ":");
    for (const Action& action : schedule.stages[stage]) absl::StrAppend(&text, " ", ToText(action));
    text += '\n';
  }
  return text;
}

absl::StatusOr<Schedule> ParseSchedule(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  Schedule schedule;
  const std::vector<absl::string_view> head = absl::StrSplit(lines[0], ' ');
  if (head.size() != 6 || head[0] != "pipeline" || head[1] != "of" || head[3] != "parts," ||
      head[5] != "microbatches" || !absl::SimpleAtoi(head[2], &schedule.parts) ||
      !absl::SimpleAtoi(head[4], &schedule.microbatches)) {
    return absl::InvalidArgumentError(
        absl::StrCat("line 1: not `pipeline of N parts, N microbatches`: ", lines[0]));
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    absl::string_view line = lines[i];
    if (!absl::ConsumePrefix(&line, absl::StrCat("stage ", i - 1, ":"))) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", i + 1, ": does not begin with `stage ", i - 1, ":`"));
    }
    std::vector<Action>& actions = schedule.stages.emplace_back();
    for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const std::optional<Action> action = ParseAction(word);
      if (!action.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat("line ", i + 1, ": not an action: ", word));
      }
      actions.push_back(*action);
    }
  }
  return schedule;
}

}  // namespace parley
