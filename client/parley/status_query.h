#ifndef PARLEY_CLIENT_PARLEY_STATUS_QUERY_H_
#define PARLEY_CLIENT_PARLEY_STATUS_QUERY_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/connector.h"
#include "common/file_system.h"
#include "proto/coordinator.pb.h"

namespace parley {

// GetStatus of the coordinator that a --coordinator option names; waits for the answer, at most
// `timeout`. Whatever fails, the message names the address or the file.
absl::StatusOr<GetStatusReply> QueryStatus(Connector& connector, FileSystem& files,
                                           const std::string& coordinator, absl::Duration timeout);

// GetStatus again and again, without making its owner wait. Used by one thread; the answers come on
// the connector's.
class StatusPoller {
 public:
  // Both must outlive the object. `coordinator`: as the option; a file is read anew while its
  // address does not answer.
  StatusPoller(Connector& connector, FileSystem& files, std::string coordinator)
      : connector_(connector), files_(files), coordinator_(std::move(coordinator)) {}

  // Asks, unless a question is open.
  void Ask(absl::Time now);

  // The answer that came since the last call.
  std::optional<GetStatusReply> Take();

 private:
  // What an answer needs; it may come after the poller has gone.
  struct Answer {
    absl::Mutex mu;
    bool open ABSL_GUARDED_BY(mu) = false;
    bool answered ABSL_GUARDED_BY(mu) = false;  // the last time: the address is right
    std::optional<GetStatusReply> reply ABSL_GUARDED_BY(mu);
  };

  Connector& connector_;
  FileSystem& files_;
  const std::string coordinator_;
  std::string address_;
  std::shared_ptr<CoordinatorClient> client_;
  std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_STATUS_QUERY_H_
