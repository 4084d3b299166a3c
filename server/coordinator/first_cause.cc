#include "server/coordinator/first_cause.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/utf8.h"

namespace parley {
namespace {

FirstCause Compose(const std::string& what, uint64_t member, bool preempted, uint64_t step) {
  FirstCause cause;
  cause.set_text(absl::StrCat(what, "; last decided step ", step));
  cause.set_member(member);
  cause.set_last_decided_step(step);
  cause.set_preempted(preempted);
  return cause;
}

}  // namespace

std::string OneLine(const std::string& text) {
  std::string reason = ValidUtf8(text, kMostReasonBytes);
  std::replace_if(
      reason.begin(), reason.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  while (!reason.empty() && reason.back() == ' ') reason.pop_back();
  return reason.empty() ? "gave no reason" : reason;
}

FirstCause LostMember(const Member& member, absl::Time heard_at, absl::Time now, uint64_t step) {
  return Compose(
      absl::StrCat(Describe(member), " has not been heard of since ", FormatSince(heard_at, now)),
      member.id(), /*preempted=*/false, step);
}

FirstCause StalledMember(const Member& member, absl::Time since, absl::Time now, uint64_t step) {
  return Compose(absl::StrCat(Describe(member), " is alive but has made no progress since ",
                              FormatSince(since, now)),
                 member.id(), /*preempted=*/false, step);
}

FirstCause ReportedBy(const Member& member, const std::string& reason, bool preempted,
                      uint64_t step) {
  return Compose(absl::StrCat(Describe(member), ": ", OneLine(reason)), member.id(), preempted,
                 step);
}

FirstCause OfCoordinator(const std::string& address, const std::string& reason, bool preempted,
                         uint64_t step) {
  return Compose(absl::StrCat("coordinator at ", address, ": ", OneLine(reason)), /*member=*/0,
                 preempted, step);
}

}  // namespace parley
