#ifndef PARLEY_WORKER_DEVICE_GROUP_ID_H_
#define PARLEY_WORKER_DEVICE_GROUP_ID_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace parley {

// How the ranks of a node group get the id by which their devices find each other: rank 0 makes it,
// and tells it to who connects to a local name (common/shared_memory/local_socket.h) that is the
// composition's own.
struct GroupIdExchange {
  std::string name;  // of the composition, alike for all ranks; at most 100 bytes
  uint32_t rank = 0;
  uint32_t ranks = 1;
  std::function<absl::StatusOr<std::string>()> make_id;
  std::function<bool()> cancelled;
};

// Waits for the others: rank 0 until all have asked, they until it tells. Cancelled where
// cancelled() says so, DeadlineExceeded at the deadline, else the errors of make_id.
absl::StatusOr<std::string> ExchangeGroupId(const GroupIdExchange& exchange, absl::Time deadline);

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_GROUP_ID_H_
