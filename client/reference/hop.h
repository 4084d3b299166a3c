#ifndef PARLEY_CLIENT_REFERENCE_HOP_H_
#define PARLEY_CLIENT_REFERENCE_HOP_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/answer_queue.h"
#include "client/reference/remote_agent.h"
#include "client/reference/remote_value.h"
#include "client/visitors.h"
#include "common/security/credentials.h"

namespace parley {

// One of two ends that hand a tensor to each other as the stages of a pipeline do: a call with a
// value that goes along, for which a thread waits as a training thread does. To measure hops; one
// thread uses it.
class HopEnd {
 public:
  // How tensors go: as on one machine, as between machines, as where there are no direct
  // connections either.
  enum class Way { kSharedMemory, kDirect, kGrpc };

  // credentials: as of RemoteAgent. The codes of RemoteAgent::Start.
  static absl::StatusOr<std::unique_ptr<HopEnd>> Start(Way way, SharedCredentials credentials);

  const std::string& address() const { return agent_->address(); }
  // The codes of RemoteAgent::Connect.
  absl::Status Connect(const std::string& peer);

  // A tensor of these bytes. The codes of RemoteAgent::Call.
  absl::Status Send(const std::shared_ptr<const std::vector<char>>& bytes);
  // DeadlineExceeded: none has come for half a minute.
  absl::StatusOr<ValuePtr> Receive();

 private:
  // Shards, of which nothing comes.
  class Nobody final : public Visitors {
   public:
    bool Visit() override { return false; }
    void Leave() override {}
  };

  HopEnd() = default;

  Nobody nobody_;
  std::shared_ptr<AnswerQueue> queue_;
  ValuePtr came_;  // the waiting thread's
  std::string peer_;
  std::unique_ptr<RemoteAgent> agent_;  // last: its threads use the rest
};

// What it takes to hand a tensor of so many bytes to a process on another machine, but for the
// cable: over the loopback, until the thread that waits has it. The median of as many rounds as go
// into `budget`, 20 at least. credentials: the job's. The errors of HopEnd.
absl::StatusOr<absl::Duration> MeasureHop(size_t bytes, absl::Duration budget,
                                          const SharedCredentials& credentials);

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_HOP_H_
