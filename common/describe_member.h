#ifndef PARLEY_COMMON_DESCRIBE_MEMBER_H_
#define PARLEY_COMMON_DESCRIBE_MEMBER_H_

#include <string>

#include "proto/types.pb.h"

namespace parley {

// How messages name a process of the job, the same in all processes.

// `worker`
const char* RoleWord(Role role);
// `worker 1 at 127.0.0.1:4567 (pid 123)`; one without an address `worker 1 on node7 (pid 123)`.
std::string Describe(const Member& member);

}  // namespace parley

#endif  // PARLEY_COMMON_DESCRIBE_MEMBER_H_
