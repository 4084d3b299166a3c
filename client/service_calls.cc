#include "client/service_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

template <class Request>
CallHeader& HeaderOf(Request& request) {
  return *request.mutable_header();
}
CallHeader& HeaderOf(TensorPush& push) { return *push.head.mutable_header(); }

}  // namespace

ServiceCalls::~ServiceCalls() {
  *gone_ = true;
  {
    absl::MutexLock lock(&asked_->mu);
    asked_->membership = nullptr;
  }
  DropUnsent();
}

void ServiceCalls::Connect(const std::vector<std::string>& shard_addresses, uint64_t job_epoch) {
  job_epoch_ = job_epoch;
  addresses_ = shard_addresses;
  shards_.clear();
  for (const std::string& address : addresses_) {
    shards_.push_back(address.empty() ? nullptr : connector_.ConnectShard(address));
  }
}

template <class Client, class Request, class Reply>
void ServiceCalls::Start(Role role, uint32_t ordinal, std::string what,
                         std::shared_ptr<Client> client, Method<Client, Request, Reply> method,
                         std::shared_ptr<Request> request, OnAnswer<Reply> answer,
                         std::function<void()> on_end, bool ahead) {
  RetryOptions retry;
  const std::shared_ptr<Activity> activity = options_.activity;
  const uint64_t call = activity == nullptr ? 0 : activity->CallBegun(role, ordinal, what, ahead);
  retry.what = std::move(what);
  retry.deadline = timers_->Now() + options_.patience;
  retry.go_on = [asked = asked_] { return asked->HearsCoordinator(); };
  // Long enough for a few MiB on a slow link. A parked call that is not answered in this time is
  // made again, which the receiver does not mind.
  retry.attempt_timeout = std::max(options_.liveness, absl::Seconds(10));
  // Either side may learn of a view much later than the other: a lost answer to Watch costs a
  // lease.
  retry.refresh_timeout = options_.patience;
  caller_.Call<Reply>(
      std::move(retry),
      [this, job_epoch = job_epoch_, client, method, request](absl::Time deadline,
                                                              Done<Reply> done) {
        CallHeader& header = HeaderOf(*request);
        header = membership_.header();
        if (job_epoch != 0) header.set_job_epoch(job_epoch);
        (client.get()->*method)(*request, deadline, std::move(done));
      },
      [this, queue = queue_, gone = gone_, answer = std::move(answer), activity, call,
       on_end = std::move(on_end)](absl::StatusOr<Reply> reply) {
        if (activity != nullptr) activity->CallEnded(call);
        if (on_end) on_end();
        queue->Post([this, gone, answer, reply = std::move(reply)]() mutable {
          if (*gone) return;
          // An answer is what a wait gets on by, however many it is for.
          if (reply.ok()) membership_.Progress(0, 0);
          answer(std::move(reply));
        });
      });
}

template <class Request, class Reply>
void ServiceCalls::ToShard(const char* verb, uint32_t shard,
                           Method<ShardClient, Request, Reply> method,
                           std::shared_ptr<Request> request, OnAnswer<Reply> answer,
                           std::function<void()> on_end, bool ahead) {
  Start<ShardClient, Request, Reply>(
      SHARD, shard, absl::StrCat(verb, " shard ", shard, " at ", addresses_[shard]), shards_[shard],
      method, std::move(request), std::move(answer), std::move(on_end), ahead);
}

void ServiceCalls::Initialize(uint32_t shard, std::shared_ptr<InitializeRequest> request,
                              OnAnswer<InitializeReply> answer) {
  ToShard("initialising", shard, &ShardClient::Initialize, std::move(request), std::move(answer));
}

void ServiceCalls::Push(uint32_t shard, std::shared_ptr<TensorPush> push,
                        OnAnswer<PushReply> answer, std::function<void()> on_acknowledged) {
  ToShard("pushing to", shard, &ShardClient::PushTensors, std::move(push), std::move(answer),
          std::move(on_acknowledged));
}

absl::StatusOr<CompleteReply> ServiceCalls::AwaitComplete(uint32_t shard,
                                                          std::shared_ptr<CompleteRequest> request,
                                                          const AnswerQueue::Wait& wait) {
  // Shared, since it can come after the wait is over.
  auto answer = std::make_shared<std::optional<absl::StatusOr<CompleteReply>>>();
  Complete(shard, std::move(request),
           [answer](absl::StatusOr<CompleteReply> reply) { answer->emplace(std::move(reply)); });
  if (absl::Status status = wait([&answer] { return answer->has_value(); }); !status.ok()) {
    return status;
  }
  return **std::move(answer);
}

void ServiceCalls::Complete(uint32_t shard, std::shared_ptr<CompleteRequest> request,
                            OnAnswer<CompleteReply> answer) {
  ToShard("completing a step at", shard, &ShardClient::Complete, std::move(request),
          std::move(answer));
}

void ServiceCalls::Pull(uint32_t shard, std::shared_ptr<PullRequest> request,
                        OnAnswer<TensorPull> answer, bool ahead) {
  ToShard("pulling from", shard, &ShardClient::PullTensors, std::move(request), std::move(answer),
          nullptr, ahead);
}

void ServiceCalls::Enter(uint32_t shard, std::shared_ptr<EnterRequest> request,
                         OnAnswer<EnterReply> answer) {
  ToShard("entering the job at", shard, &ShardClient::Enter, std::move(request), std::move(answer));
}

void ServiceCalls::RegisterModel(std::shared_ptr<RegisterModelRequest> request,
                                 OnAnswer<RegisterModelReply> answer) {
  Start<CoordinatorClient, RegisterModelRequest, RegisterModelReply>(
      COORDINATOR, 0, "registering the model with the coordinator", membership_.coordinator(),
      &CoordinatorClient::RegisterModel, std::move(request), std::move(answer));
}

void ServiceCalls::ReportEvaluation(std::shared_ptr<ReportEvaluationRequest> request,
                                    OnAnswer<ReportEvaluationReply> answer) {
  Start<CoordinatorClient, ReportEvaluationRequest, ReportEvaluationReply>(
      COORDINATOR, 0, "reporting an evaluation to the coordinator", membership_.coordinator(),
      &CoordinatorClient::ReportEvaluation, std::move(request), std::move(answer));
}

void ServiceCalls::Finish(std::shared_ptr<FinishRequest> request, OnAnswer<FinishReply> answer) {
  Start<CoordinatorClient, FinishRequest, FinishReply>(
      COORDINATOR, 0, "reporting the end to the coordinator", membership_.coordinator(),
      &CoordinatorClient::Finish, std::move(request), std::move(answer));
}

}  // namespace parley
