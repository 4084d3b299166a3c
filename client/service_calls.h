#ifndef PARLEY_CLIENT_SERVICE_CALLS_H_
#define PARLEY_CLIENT_SERVICE_CALLS_H_

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
#include "client/activity.h"
#include "client/answer_queue.h"
#include "client/connector.h"
#include "client/membership.h"
#include "client/retrying_caller.h"

namespace parley {

// A worker's calls: each is repeated by status code for up to `patience`, with the header of the
// newest view in each attempt, and its end is posted to the queue of the training thread.
// Thread-safe.
//
// It serves one job_epoch, that of Connect: what is sent names that one, whatever the membership
// has learnt since, so that nothing of a step that the job went back before passes for a later one.
// Who follows the job into another epoch makes another one. Answers that come when it has gone are
// dropped; so it is the training thread that destroys it.
class ServiceCalls {
 public:
  struct Options {
    absl::Duration patience;  // with one call
    absl::Duration liveness;
    std::shared_ptr<Activity> activity = nullptr;  // is told of each call until its answer
  };

  // connector and membership must outlive it; queue and timers are shared with open calls. The
  // timers must be stopped before the membership goes.
  ServiceCalls(const Options& options, Connector& connector, Membership& membership,
               std::shared_ptr<AnswerQueue> queue, std::shared_ptr<Timers> timers, uint64_t seed)
      : options_(options),
        connector_(connector),
        membership_(membership),
        asked_(new Asked{.membership = &membership}),
        queue_(std::move(queue)),
        timers_(std::move(timers)),
        caller_(timers_, seed) {}
  ~ServiceCalls();

  // Not thread-safe with the calls below: before the first one to a shard, once. host:port by
  // ordinal; empty: there is none, and nothing is called there.
  void Connect(const std::vector<std::string>& shard_addresses, uint64_t job_epoch);
  // 0 before Connect: then calls are of the newest one.
  uint64_t job_epoch() const { return job_epoch_; }

  // Whether what is pushed to this shard may be lent (ShardClient::ReadsLentMemory).
  bool ReadsLentMemory(uint32_t shard) const { return shards_[shard]->ReadsLentMemory(); }

  // Whether a Complete that begins now comes after the pushes before it (ShardClient::KeepsOrder).
  bool KeepsOrder(uint32_t shard) const { return shards_[shard]->KeepsOrder(); }

  // Whether small slices should go with the Complete (ShardClient::JoinsCalls).
  bool JoinsCalls(uint32_t shard) const { return shards_[shard]->JoinsCalls(); }

  // The tensors of pushes that were begun may be written again (ShardClient::DropUnsent).
  void DropUnsent() {
    for (const auto& shard : shards_) {
      if (shard != nullptr) shard->DropUnsent();
    }
  }

  // The answer, on the training thread in AnswerQueue::RunUntil.
  template <class Reply>
  using OnAnswer = std::function<void(absl::StatusOr<Reply>)>;

  void Initialize(uint32_t shard, std::shared_ptr<InitializeRequest> request,
                  OnAnswer<InitializeReply> answer);
  // on_acknowledged: when the answer has come, whatever it is, before it is posted; on the thread
  // that brings it, perhaps inside this call. Not where the call never ends.
  void Push(uint32_t shard, std::shared_ptr<TensorPush> push, OnAnswer<PushReply> answer,
            std::function<void()> on_acknowledged = nullptr);
  void Complete(uint32_t shard, std::shared_ptr<CompleteRequest> request,
                OnAnswer<CompleteReply> answer);
  // Completes, and runs answers until that one has come.
  absl::StatusOr<CompleteReply> AwaitComplete(uint32_t shard,
                                              std::shared_ptr<CompleteRequest> request,
                                              const AnswerQueue::Wait& wait);
  // ahead: nobody waits for it yet, other than for all else that is open (Activity).
  void Pull(uint32_t shard, std::shared_ptr<PullRequest> request, OnAnswer<TensorPull> answer,
            bool ahead = false);
  void Enter(uint32_t shard, std::shared_ptr<EnterRequest> request, OnAnswer<EnterReply> answer);

  void RegisterModel(std::shared_ptr<RegisterModelRequest> request,
                     OnAnswer<RegisterModelReply> answer);
  void ReportEvaluation(std::shared_ptr<ReportEvaluationRequest> request,
                        OnAnswer<ReportEvaluationReply> answer);
  void Finish(std::shared_ptr<FinishRequest> request, OnAnswer<FinishReply> answer);

 private:
  template <class Client, class Request, class Reply>
  using Method = void (Client::*)(const Request&, absl::Time, Done<Reply>);

  template <class Client, class Request, class Reply>
  void Start(Role role, uint32_t ordinal, std::string what, std::shared_ptr<Client> client,
             Method<Client, Request, Reply> method, std::shared_ptr<Request> request,
             OnAnswer<Reply> answer, std::function<void()> on_end = nullptr, bool ahead = false);
  template <class Request, class Reply>
  void ToShard(const char* verb, uint32_t shard, Method<ShardClient, Request, Reply> method,
               std::shared_ptr<Request> request, OnAnswer<Reply> answer,
               std::function<void()> on_end = nullptr, bool ahead = false);

  // The membership as threads see it that bring answers: these may come when it has gone.
  struct Asked {
    bool HearsCoordinator() {
      absl::MutexLock lock(&mu);
      return membership != nullptr && membership->hears_coordinator();
    }
    absl::Mutex mu;
    const Membership* membership ABSL_GUARDED_BY(mu);  // null from the end of the calls on
  };

  const Options options_;
  Connector& connector_;
  Membership& membership_;
  const std::shared_ptr<Asked> asked_;
  const std::shared_ptr<AnswerQueue> queue_;
  const std::shared_ptr<Timers> timers_;
  RetryingCaller caller_;
  const std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);  // the training thread's
  std::vector<std::shared_ptr<ShardClient>> shards_;                  // by ordinal
  std::vector<std::string> addresses_;
  uint64_t job_epoch_ = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_SERVICE_CALLS_H_
