#ifndef PARLEY_CLIENT_PARLEY_STATUS_TEXT_H_
#define PARLEY_CLIENT_PARLEY_STATUS_TEXT_H_

#include <string>

#include "proto/coordinator.pb.h"

namespace parley {

// `parley status`: the job, its progress, and a row for each member, with how stale a worker is in
// bounded and async. Lines, each ended.
std::string StatusText(const GetStatusReply& status);

// Protobuf's JSON with the fields' own names, all fields present but those that say nothing when
// unset; 64-bit numbers are strings. One line.
std::string StatusJson(const GetStatusReply& status);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_STATUS_TEXT_H_
