#ifndef PARLEY_COMMON_JOB_STATE_H_
#define PARLEY_COMMON_JOB_STATE_H_

#include <memory>

#include "proto/coordinator.pb.h"

namespace parley {

// A state of the job, as the coordinator tells it to all who watch. With a thousand members it has
// a hundred kilobytes: it is made once and passed on, never changed. Not nullptr.
using SharedJobState = std::shared_ptr<const WatchReply>;

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_STATE_H_
