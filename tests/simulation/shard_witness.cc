#include "tests/simulation/shard_witness.h"

#include <cstdint>
#include <utility>

namespace parley {
namespace {

using Verb = ShardObserver::Verb;

class Witness final : public ShardClient, public std::enable_shared_from_this<Witness> {
 public:
  Witness(std::string name, std::shared_ptr<ShardClient> to, std::vector<ShardObserver*> observers)
      : name_(std::move(name)), to_(std::move(to)), observers_(std::move(observers)) {}

  void Push(const PushRequest& request, absl::Time deadline, Done<PushReply> done) override {
    Carry(&ShardClient::Push, request, deadline, std::move(done),
          [request](ShardObserver& observer, const std::string& name, const PushReply& reply) {
            observer.OnPush(name, request, reply);
          });
  }
  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    // As it is when it comes: what is lent has to stay so.
    PushRequest request = push.head;
    for (const TensorSlice& slice : push.slices) CopyTo(slice, *request.add_slices());
    Carry(&ShardClient::PushTensors, push, deadline, std::move(done),
          [request](ShardObserver& observer, const std::string& name, const PushReply& reply) {
            observer.OnPush(name, request, reply);
          });
  }
  void Advance(const AdvanceRequest& request, absl::Time deadline,
               Done<AdvanceReply> done) override {
    Carry(&ShardClient::Advance, request, deadline, std::move(done),
          [request](ShardObserver& observer, const std::string& name, const AdvanceReply&) {
            observer.OnAdvance(name, request);
          });
  }
  void Close(const CloseRequest& request, absl::Time deadline, Done<CloseReply> done) override {
    Carry(&ShardClient::Close, request, deadline, std::move(done),
          [request](ShardObserver& observer, const std::string& name, const CloseReply&) {
            observer.OnClose(name, request);
          });
  }
  void Complete(const CompleteRequest& request, absl::Time deadline,
                Done<CompleteReply> done) override {
    Carry(&ShardClient::Complete, request, deadline,
          Begin(Verb::kComplete, nullptr, std::move(done)),
          [request](ShardObserver& observer, const std::string& name, const CompleteReply& reply) {
            observer.OnComplete(name, request, reply);
          });
  }
  void Enter(const EnterRequest& request, absl::Time deadline, Done<EnterReply> done) override {
    Carry(&ShardClient::Enter, request, deadline, Begin(Verb::kEnter, nullptr, std::move(done)),
          [request](ShardObserver& observer, const std::string& name, const EnterReply& reply) {
            observer.OnEnter(name, request, reply);
          });
  }
  void Pull(const PullRequest& request, absl::Time deadline, Done<PullReply> done) override {
    Carry(&ShardClient::Pull, request, deadline, Begin(Verb::kPull, &request, std::move(done)),
          [request](ShardObserver& observer, const std::string& name, const PullReply&) {
            observer.OnPull(name, request);
          });
  }
#define PARLEY_FORWARD(Method)                                                               \
  void Method(const Method##Request& request, absl::Time deadline, Done<Method##Reply> done) \
      override {                                                                             \
    Carry(&ShardClient::Method, request, deadline, std::move(done),                          \
          [](ShardObserver&, const std::string&, const Method##Reply&) {});                  \
  }
  PARLEY_FORWARD(Initialize)
  PARLEY_FORWARD(Decide)
  PARLEY_FORWARD(WhyFailed)
#undef PARLEY_FORWARD

 private:
  template <class Request, class Reply, class Tell>
  void Carry(void (ShardClient::*method)(const Request&, absl::Time, Done<Reply>),
             const Request& request, absl::Time deadline, Done<Reply> done, Tell tell) {
    (to_.get()->*method)(request, deadline,
                         [self = shared_from_this(), tell = std::move(tell),
                          done = std::move(done)](absl::StatusOr<Reply> reply) {
                           if (reply.ok()) {
                             for (ShardObserver* const observer : self->observers_) {
                               tell(*observer, self->name_, *reply);
                             }
                           }
                           done(std::move(reply));
                         });
    for (ShardObserver* const observer : observers_) observer->AfterCall(name_);
  }

  // Tells of a call that may be parked; `done` as it is to be called then.
  template <class Reply>
  Done<Reply> Begin(Verb verb, const PullRequest* pull, Done<Reply> done) {
    const uint64_t call = ++calls_;
    for (ShardObserver* const observer : observers_) observer->OnBegin(name_, call, verb, pull);
    return [self = shared_from_this(), call, done = std::move(done)](absl::StatusOr<Reply> reply) {
      for (ShardObserver* const observer : self->observers_) {
        observer->OnEnd(self->name_, call);
      }
      done(std::move(reply));
    };
  }

  const std::string name_;
  const std::shared_ptr<ShardClient> to_;
  const std::vector<ShardObserver*> observers_;
  uint64_t calls_ = 0;
};

}  // namespace

std::shared_ptr<ShardClient> Witnessed(std::string name, std::shared_ptr<ShardClient> shard,
                                       std::vector<ShardObserver*> observers) {
  return std::make_shared<Witness>(std::move(name), std::move(shard), std::move(observers));
}

}  // namespace parley
