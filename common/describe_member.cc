#include "common/describe_member.h"

#include "absl/strings/str_cat.h"

namespace parley {

const char* RoleWord(Role role) {
  switch (role) {
    case COORDINATOR:
      return "coordinator";
    case SHARD:
      return "shard";
    case STAGE:
      return "stage";
    case WORKER:
      return "worker";
    case OPERATOR:
      return "operator";
    default:
      return "member";
  }
}

std::string Describe(const Member& member) {
  std::string where;
  if (!member.address().empty()) {
    where = absl::StrCat(" at ", member.address());
  } else if (!member.host().empty()) {
    where = absl::StrCat(" on ", member.host());
  }
  return absl::StrCat(RoleWord(member.role()), " ", member.ordinal(), where, " (pid ", member.pid(),
                      ")");
}

}  // namespace parley
