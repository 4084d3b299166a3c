#include "client/parley/status_text.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/parley/progress.h"
#include "client/parley/units.h"

namespace parley {
namespace {

void AddRow(std::string& text, const std::string& name, const std::string& value) {
  absl::StrAppendFormat(&text, "%-12s %s\n", name, value);
}

void AddMembers(const GetStatusReply& status, std::string& text) {
  const auto& members = status.members();
  const bool has_staleness =
      std::any_of(members.begin(), members.end(),
                  [](const MemberStatus& member) { return member.has_staleness(); });
  // Room of the column, which is there in bounded and async alone.
  const auto staleness = [has_staleness](const std::string& value) {
    return has_staleness ? absl::StrFormat(" %9s", value) : "";
  };
  absl::StrAppendFormat(&text, "\n%-12s %-22s %-22s %8s %10s%s  %s\n", "MEMBER", "ADDRESS",
                        "METRICS", "PID", "STEP", staleness("STALENESS"), "HEARD OF");
  for (const MemberStatus& member : members) {
    const Member& who = member.member();
    absl::StrAppendFormat(
        &text, "%-12s %-22s %-22s %8d %10d%s  %s\n",
        absl::StrCat(absl::AsciiStrToLower(Role_Name(who.role())), "-", who.ordinal()),
        who.address().empty() ? who.host() : who.address(), who.metrics_address(), who.pid(),
        member.step(), staleness(member.has_staleness() ? absl::StrCat(member.staleness()) : "-"),
        member.left() ? "has left"
                      : absl::StrFormat("%.1f s ago%s", member.seconds_since_heartbeat(),
                                        member.drained() ? ", told to go" : ""));
  }
}

}  // namespace

std::string StatusText(const GetStatusReply& status) {
  std::string text;
  AddRow(text, "job", status.job());
  AddRow(text, "phase", absl::AsciiStrToLower(Phase_Name(status.phase())));
  if (status.has_cause()) AddRow(text, "first cause", status.cause().text());
  if (!status.preemption().empty()) AddRow(text, "told to end", status.preemption());
  if (!status.what_is_missing().empty()) AddRow(text, "missing", status.what_is_missing());
  if (status.phase() != GATHERING && status.phase() != PREPARING) {
    GetStatusReply training = status;
    training.set_phase(TRAINING);
    AddRow(text, "progress", ProgressLine(training, std::nullopt));
    AddRow(text, "trained for", DurationText(absl::Seconds(status.seconds_training())));
  }
  if (!status.evaluations().empty()) {
    AddRow(text, "evaluation", EvaluationLine(*status.evaluations().rbegin()));
  }
  AddRow(text, "checkpoint",
         status.checkpoint_directory().empty() ? "none yet" : status.checkpoint_directory());
  if (status.checkpoints_failed() != 0) {
    AddRow(text, "failed ones",
           absl::StrCat(status.checkpoints_failed(), "; the last: ", status.checkpoint_error()));
  }
  AddRow(text, "epochs",
         absl::StrCat("job ", status.job_epoch(), ", view ", status.view_epoch(),
                      ", coordinator's generation ", status.generation()));
  if (status.wanted_workers() != 0) {
    AddRow(text, "wanted", WantedText(status));
  }
  AddRow(text, "members", absl::StrCat(status.members_size(), " of ", status.expected_members()));
  if (!status.members().empty()) AddMembers(status, text);
  return text;
}

std::string StatusJson(const GetStatusReply& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto done = google::protobuf::util::MessageToJsonString(status, &json, options);
  return done.ok() ? absl::StrCat(json, "\n") : "{}\n";
}

}  // namespace parley
