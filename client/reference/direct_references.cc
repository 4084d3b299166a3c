#include "client/reference/direct_references.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/reference/value_wire.h"
#include "common/clock/steady_now.h"
#include "common/direct/frame.h"

namespace parley {
namespace {

constexpr char kCall[] = "Call";
constexpr char kFetch[] = "Fetch";

absl::Status NotServed() {
  return absl::UnavailableError("this process does not serve references now");
}

// Answers, and tells the observer. Copied with the answer of the core.
class Answering {
 public:
  Answering(const char* method, DirectServer::Answer answer, const RpcObserver& observer)
      : method_(method), answer_(std::move(answer)), observer_(observer) {}

  void operator()(const absl::Status& status, const google::protobuf::MessageLite& reply,
                  std::vector<TensorSlice> slices = {}) const {
    answer_(status, reply, std::move(slices));
    if (observer_) observer_(method_, static_cast<int>(status.code()), SteadyNow() - came_);
  }

 private:
  const char* const method_;
  const DirectServer::Answer answer_;
  const RpcObserver observer_;
  const absl::Time came_ = SteadyNow();
};

absl::Status Call(ReferenceHost& host, DirectServer::Call incoming, const RpcObserver& observer) {
  DescribedCall described;
  if (!described.head.ParseFromString(incoming.message) || described.head.data_size() != 0) {
    return absl::InvalidArgumentError("not a RemoteCallRequest");
  }
  described.data = std::move(incoming.slices);
  const absl::StatusOr<OutgoingCall> call = AssembleCall(std::move(described));
  if (!call.ok()) return call.status();
  const Answering answer(kCall, incoming.answer, observer);
  const bool there = host.With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.OnCall(*call, {now, now + incoming.patience}, replies,
                 [answer](const absl::StatusOr<RemoteCallReply>& reply) {
                   answer(reply.status(), reply.ok() ? *reply : RemoteCallReply());
                 });
  });
  if (!there) answer(NotServed(), RemoteCallReply());
  return absl::OkStatus();
}

absl::Status Fetch(ReferenceHost& host, const DirectServer::Call& incoming,
                   const RpcObserver& observer) {
  FetchRequest request;
  if (!request.ParseFromString(incoming.message) || !incoming.slices.empty()) {
    return absl::InvalidArgumentError("not a FetchRequest");
  }
  const Answering answer(kFetch, incoming.answer, observer);
  const bool there = host.With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.OnFetch(request, {now, now + incoming.patience}, replies,
                  [answer](const absl::StatusOr<FetchedValue>& fetched) {
                    if (!fetched.ok()) return answer(fetched.status(), FetchReply());
                    DescribedFetch described = DescribeFetched(*fetched, kMostTensorBytes);
                    answer(absl::OkStatus(), described.head, std::move(described.data));
                  });
  });
  if (!there) answer(NotServed(), FetchReply());
  return absl::OkStatus();
}

// Makes the call; `read` turns its reply into what `done` is told.
template <class Read>
bool Make(DirectLink& link, const char* method, const google::protobuf::MessageLite& message,
          std::vector<TensorSlice> slices, absl::Time deadline, Done<FromOwner>& done, Read read) {
  // Kept until it has begun, so that it can be given back.
  const auto kept = std::make_shared<Done<FromOwner>>(std::move(done));
  Done<DirectLink::Reply> answer = [kept, read](absl::StatusOr<DirectLink::Reply> reply) {
    (*kept)(reply.ok() ? read(*std::move(reply)) : reply.status());
  };
  if (link.Call(method, message, std::move(slices), deadline, answer)) return true;
  done = std::move(*kept);
  return false;
}

}  // namespace

DirectServer::Methods DirectReferenceMethods(std::shared_ptr<ReferenceHost> host,
                                             RpcObserver observer) {
  return {{kCall, [host, observer](
                      DirectServer::Call call) { return Call(*host, std::move(call), observer); }},
          {kFetch, [host, observer](const DirectServer::Call& call) {
             return Fetch(*host, call, observer);
           }}};
}

bool CallDirectly(DirectLink& link, const OutgoingCall& call, absl::Time deadline,
                  Done<FromOwner>& done) {
  if (!link.ready()) {
    link.Open();
    return false;
  }
  DescribedCall described = DescribeCall(call, kMostTensorBytes);
  return Make(link, kCall, described.head, std::move(described.data), deadline, done,
              [](const DirectLink::Reply&) -> absl::StatusOr<FromOwner> {
                return FromOwner(RemoteCallReply());
              });
}

bool FetchDirectly(DirectLink& link, const FetchRequest& request, absl::Time deadline,
                   Done<FromOwner>& done) {
  return Make(link, kFetch, request, {}, deadline, done,
              [](DirectLink::Reply reply) -> absl::StatusOr<FromOwner> {
                DescribedFetch described;
                if (!described.head.ParseFromString(reply.message)) {
                  return absl::InternalError("what came is no FetchReply");
                }
                described.data = std::move(reply.slices);
                absl::StatusOr<FetchedValue> fetched = AssembleFetched(std::move(described));
                if (!fetched.ok()) return fetched.status();
                return FromOwner(*std::move(fetched));
              });
}

}  // namespace parley
