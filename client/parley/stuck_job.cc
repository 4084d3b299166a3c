#include "client/parley/stuck_job.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/describe_member.h"

namespace parley {
namespace {

// Of one whose pid is not known.
std::string NameOf(Role role, uint32_t ordinal, const std::string& address) {
  std::string name = absl::AsciiStrToLower(Role_Name(role));
  if (role != COORDINATOR) absl::StrAppend(&name, " ", ordinal);
  if (!address.empty()) absl::StrAppend(&name, " at ", address);
  return name;
}

// The label's text; empty where there is none.
std::string Label(const nlohmann::json& labels, const char* name) {
  const auto found = labels.find(name);
  return found == labels.end() || !found->is_string() ? "" : found->get<std::string>();
}

}  // namespace

std::vector<Askable> AskablesOf(const std::string& coordinator, const GetStatusReply& status) {
  std::vector<Askable> askables;
  Askable& first = askables.emplace_back();
  first.place = {COORDINATOR, 0};
  first.address = coordinator;
  first.name = NameOf(COORDINATOR, 0, coordinator);
  for (const MemberStatus& member : status.members()) {
    if (member.left()) continue;
    const Member& who = member.member();
    Askable& askable = askables.emplace_back();
    askable.place = {who.role(), who.ordinal()};
    askable.address = who.address();
    askable.name = Describe(who);
    askable.silent_for = member.seconds_since_heartbeat();
  }
  return askables;
}

absl::StatusOr<std::vector<Askable>> AskablesOfTargets(const std::string& targets_json) {
  const auto groups = nlohmann::json::parse(targets_json, nullptr, /*allow_exceptions=*/false);
  if (!groups.is_array()) return absl::InvalidArgumentError("this is no targets.json of a job");
  std::vector<Askable> askables;
  for (const auto& group : groups) {
    if (!group.is_object() || !group.contains("labels") || !group["labels"].is_object()) continue;
    const auto& labels = group["labels"];
    Askable askable;
    Role role = ROLE_UNSPECIFIED;
    // The coordinator's own entry has none of these.
    if (!Role_Parse(Label(labels, "__parley_role"), &role) ||
        !absl::SimpleAtoi(Label(labels, "__parley_ordinal"), &askable.place.second)) {
      continue;
    }
    askable.place.first = role;
    askable.address = Label(labels, "__parley_address");
    askable.name = NameOf(role, askable.place.second, askable.address);
    askables.push_back(std::move(askable));
  }
  return askables;
}

AskedProcess Asked(const Askable& askable, const absl::StatusOr<WaitsReply>& reply) {
  AskedProcess asked;
  asked.place = askable.place;
  asked.name = askable.name;
  asked.silent_for = askable.silent_for;
  if (reply.ok()) {
    asked.answer = AskedProcess::Answer::kTold;
    asked.waits.assign(reply->waits().begin(), reply->waits().end());
    asked.step = reply->step();
    return asked;
  }
  const bool is_there = askable.address.empty() || absl::IsUnimplemented(reply.status());
  asked.answer = is_there ? AskedProcess::Answer::kCannot : AskedProcess::Answer::kSilent;
  asked.error = askable.address.empty()
                    ? "it has no server"
                    : std::string(absl::StripAsciiWhitespace(reply.status().message()));
  return asked;
}

}  // namespace parley
