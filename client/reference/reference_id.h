#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_ID_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_ID_H_

#include <compare>
#include <cstdint>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/remote_reference.pb.h"

namespace parley {

// A reference: who owns it, and the call that makes its value (proto/remote_reference.proto). Never
// used twice, since sessions and incarnations are random numbers.
struct ReferenceId {
  uint64_t owner = 0;
  uint64_t session = 0;
  uint64_t number = 0;

  auto operator<=>(const ReferenceId&) const = default;
};

inline ReferenceId FromMessage(const ReferenceName& name) {
  return {name.owner(), name.session(), name.number()};
}
inline void ToMessage(const ReferenceId& id, ReferenceName& name) {
  name.set_owner(id.owner);
  name.set_session(id.session);
  name.set_number(id.number);
}
inline std::string ToString(const ReferenceId& id) {
  return absl::StrCat(absl::Hex(id.owner), ":", absl::Hex(id.session), ":", id.number);
}

// Forks of the owner's giving are numbered apart from those that their holder asked for.
inline constexpr uint64_t kGivenFork = uint64_t{1} << 63;

// The attempt of a step that a value belongs to. What is of an attempt ends with it, and so does
// all of the attempts before it.
struct StepScope {
  uint64_t job_epoch = 0;
  uint64_t step = 0;  // 0: of none
  uint32_t attempt = 0;

  auto operator<=>(const StepScope&) const = default;
};

inline StepScope StepOf(const ReferenceScope& scope) {
  return {scope.job_epoch(), scope.step(), scope.attempt()};
}

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_ID_H_
