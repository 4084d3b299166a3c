#ifndef PARLEY_COMMON_RPC_RPC_OBSERVER_H_
#define PARLEY_COMMON_RPC_RPC_OBSERVER_H_

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace parley {

// A call that a server has answered, by whatever way it came: method ("Push"), the code of its
// status, and how long it took. Called on any thread.
using RpcObserver =
    std::function<void(const std::string& method, int code, absl::Duration duration)>;

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_RPC_OBSERVER_H_
