#ifndef PARLEY_CLIENT_PIPELINE_PIPELINE_LINKS_H_
#define PARLEY_CLIENT_PIPELINE_PIPELINE_LINKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/pipeline/peer_waiter.h"
#include "client/pipeline/pipeline_inbox.h"
#include "client/pipeline/pipeline_message.h"
#include "client/reference/remote_agent.h"
#include "client/session.h"
#include "common/rpc/refusals.h"
#include "common/security/credentials.h"

namespace parley {

// A process's links to the others of its pipeline. A message is a call of a function of the other
// process, with a remote reference to a value of this one (docs/remote_references.md); the value
// goes along with it, so that no round trip stands in the way of an activation. Values are of the
// scope (job_epoch, composition, unit), and end with it at the latest.
//
// The training thread uses it. It must be destroyed before the session whose thread it wakes.
class PipelineLinks {
 public:
  struct Options {
    std::string job;
    std::string listen;                           // host:port at which `service` is served
    std::string address;                          // the same as others know it
    ReferenceService* service = nullptr;          // outlives the links
    absl::Duration liveness = absl::Seconds(10);  // of the job
    absl::Duration patience = absl::Minutes(10);  // with a process that does not serve yet
    SharedCredentials credentials;                // the job's
    RpcObserver observer;                         // of calls that do not come by gRPC
    Refusals::Told refused;                       // of strangers who do not come by gRPC
    // After so long without a word another process's link is lost. 0: long enough for the
    // coordinator to say first who is dead.
    absl::Duration lease = absl::ZeroDuration();
  };

  // The codes of RemoteAgent::Start.
  static absl::StatusOr<std::unique_ptr<PipelineLinks>> Start(const Options& options,
                                                              Session& session);

  // Begins the next unit of work: the next one of the pipeline as the session knows it, or its
  // first one where that has changed since the last call, or the job has gone back. Then connects
  // with all others. The errors of Session::AwaitPeers; DeadlineExceeded: one of them is there, but
  // cannot be reached.
  absl::Status BeginUnit();
  // The key of a message of this unit.
  PipelineKey Key(PipelineKind kind, uint32_t part, uint32_t microbatch = 0) const;

  const Session::Pipeline& pipeline() const { return pipeline_; }
  uint32_t stages() const { return static_cast<uint32_t>(pipeline_.members.size()) - 1; }

  // To the worker, or to a stage of the pipeline. Does not wait, but for a new connection (for
  // `liveness` at most) where that process was not heard of for a lease. Unavailable: it is gone,
  // or still cannot be reached, or lost().
  absl::Status ToWorker(const PipelineKey& key, std::vector<ValueTensor> tensors);
  // on_device: as ToValue.
  absl::Status ToStage(uint32_t stage, const PipelineKey& key, std::vector<ValueTensor> tensors,
                       bool on_device = false);

  // Await waits through this one from here on; null: through the session. Not while it waits.
  void WaitThrough(PeerWaiter* waiter);

  // Waits for a message. The errors of Session::AwaitPeers; InvalidArgument where another process
  // has sent what is no message, or one that is too large; lost().
  absl::StatusOr<ValuePtr> Await(const PipelineKey& key, const std::string& what);
  // Waits until all that was sent in this unit has come: what else is waited for may follow from
  // it, and wait for ever where it has not. The errors of Session::AwaitPeers; lost().
  absl::Status AwaitSent();
  // Unavailable, with the process's name: something that was sent in this unit may not have come
  // there, since the link was lost on its way, and nobody will send it again. Any thread.
  absl::Status lost() const;

  // After an error of any of these: follows the job, as Session::Abandon. A link can end before the
  // session knows who is gone: then it waits for that, for some time; Aborted where it does not
  // come, so that two processes that do not reach each other end the job.
  absl::StatusOr<Verdict> GiveUp(const absl::Status& why);

  // This unit, and all before it, are over for all processes of the pipeline: their values go.
  void EndUnit();

  RemoteAgent::Counts counts() const { return agent_->counts(); }

 private:
  PipelineLinks(const Options& options, Session& session);
  void Wake();  // any thread
  absl::Status Connect(const Member& member);
  absl::Status Send(size_t part, const PipelineKey& key, std::vector<ValueTensor> tensors,
                    bool on_device = false);
  absl::Status AwaitPeers(const std::string& what, const std::function<bool()>& done);
  // What was sent in that turn has come there, or it cannot be known; any thread.
  void Answered(uint64_t turn, const Member& member, const absl::Status& status);

  Session& session_;
  const absl::Duration liveness_;
  const absl::Duration patience_;
  absl::Mutex wake_mu_;
  PeerWaiter* waiter_ ABSL_GUARDED_BY(wake_mu_) = nullptr;
  PipelineInbox inbox_;
  mutable absl::Mutex sent_mu_;
  uint64_t turn_ ABSL_GUARDED_BY(sent_mu_) = 0;  // the present unit; never the same again
  size_t sent_ ABSL_GUARDED_BY(sent_mu_) = 0;    // in it, and not answered yet
  bool awaits_sent_ ABSL_GUARDED_BY(sent_mu_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(sent_mu_);
  Session::Pipeline pipeline_;
  uint64_t job_epoch_ = 0;
  uint64_t unit_ = 0;
  bool connected_ = false;
  std::unique_ptr<RemoteAgent> agent_;  // last: its threads use the rest
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PIPELINE_PIPELINE_LINKS_H_
