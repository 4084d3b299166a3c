#include "tests/contract/faulty_connector.h"

#include <utility>

namespace parley {
namespace {

class FaultyShardClient final : public ShardClient {
 public:
  FaultyShardClient(FaultyConnector& faults, std::shared_ptr<ShardClient> to)
      : faults_(faults), to_(std::move(to)) {}

  bool JoinsCalls() const override { return to_->JoinsCalls(); }

#define PARLEY_FORWARD(Method)                                                               \
  void Method(const Method##Request& request, absl::Time deadline, Done<Method##Reply> done) \
      override {                                                                             \
    Call<Method##Request, Method##Reply>(&ShardClient::Method, request, deadline,            \
                                         std::move(done));                                   \
  }
  PARLEY_FORWARD(Initialize)
  PARLEY_FORWARD(Push)
  PARLEY_FORWARD(Complete)
  PARLEY_FORWARD(Enter)
  PARLEY_FORWARD(Close)
  PARLEY_FORWARD(Decide)
  PARLEY_FORWARD(Advance)
  PARLEY_FORWARD(Pull)
  PARLEY_FORWARD(WhyFailed)
  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    Call<TensorPush, PushReply>(&ShardClient::PushTensors, push, deadline, std::move(done));
  }
  void PullTensors(const PullRequest& request, absl::Time deadline,
                   Done<TensorPull> done) override {
    Call<PullRequest, TensorPull>(&ShardClient::PullTensors, request, deadline, std::move(done));
  }
#undef PARLEY_FORWARD

 private:
  template <class Request, class Reply>
  void Call(void (ShardClient::*method)(const Request&, absl::Time, Done<Reply>),
            const Request& request, absl::Time deadline, Done<Reply> done) {
    if (absl::Status refusal = faults_.refusal(); !refusal.ok()) return done(refusal);
    switch (faults_.Draw()) {
      case FaultyConnector::Fault::kLoseRequest:
        return done(absl::UnavailableError("the request was lost"));
      case FaultyConnector::Fault::kLoseAnswer:
        (to_.get()->*method)(request, deadline, [done](const absl::StatusOr<Reply>&) {
          done(absl::UnavailableError("the answer was lost"));
        });
        return;
      case FaultyConnector::Fault::kTwice:
        (to_.get()->*method)(request, deadline, [](const absl::StatusOr<Reply>&) {});
        break;
      case FaultyConnector::Fault::kNone:
        break;
    }
    (to_.get()->*method)(request, deadline, std::move(done));
  }

  FaultyConnector& faults_;
  const std::shared_ptr<ShardClient> to_;
};

}  // namespace

std::shared_ptr<ShardClient> FaultyConnector::ConnectShard(const std::string& address) {
  return std::make_shared<FaultyShardClient>(*this, to_.ConnectShard(address));
}

FaultyConnector::Fault FaultyConnector::Draw() {
  absl::MutexLock lock(&mu_);
  const uint64_t draw = random_() % 15;
  if (draw >= 3) return Fault::kNone;
  ++faults_;
  return draw == 0 ? Fault::kLoseRequest : draw == 1 ? Fault::kLoseAnswer : Fault::kTwice;
}

}  // namespace parley
