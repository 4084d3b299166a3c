#include "client/reference/direct_references.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/reference/value_wire.h"
#include "common/direct/frame.h"

namespace parley {
namespace {

constexpr char kCall[] = "Call";
constexpr char kFetch[] = "Fetch";

absl::Status NotServed() {
  return absl::UnavailableError("this process does not serve references now");
}

absl::Status Call(ReferenceHost& host, DirectServer::Call incoming) {
  DescribedCall described;
  if (!described.head.ParseFromString(incoming.message) || described.head.data_size() != 0) {
    return absl::InvalidArgumentError("not a RemoteCallRequest");
  }
  described.data = std::move(incoming.slices);
  const absl::StatusOr<OutgoingCall> call = AssembleCall(std::move(described));
  if (!call.ok()) return call.status();
  const bool there = host.With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.OnCall(*call, {now, now + incoming.patience}, replies,
                 [answer = incoming.answer](const absl::StatusOr<RemoteCallReply>& reply) {
                   answer(reply.status(), reply.ok() ? *reply : RemoteCallReply(), {});
                 });
  });
  if (!there) incoming.answer(NotServed(), RemoteCallReply(), {});
  return absl::OkStatus();
}

absl::Status Fetch(ReferenceHost& host, const DirectServer::Call& incoming) {
  FetchRequest request;
  if (!request.ParseFromString(incoming.message) || !incoming.slices.empty()) {
    return absl::InvalidArgumentError("not a FetchRequest");
  }
  const bool there = host.With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.OnFetch(request, {now, now + incoming.patience}, replies,
                  [answer = incoming.answer](const absl::StatusOr<FetchedValue>& fetched) {
                    if (!fetched.ok()) return answer(fetched.status(), FetchReply(), {});
                    DescribedFetch described = DescribeFetched(*fetched, kMostTensorBytes);
                    answer(absl::OkStatus(), described.head, std::move(described.data));
                  });
  });
  if (!there) incoming.answer(NotServed(), FetchReply(), {});
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

DirectServer::Methods DirectReferenceMethods(std::shared_ptr<ReferenceHost> host) {
  return {{kCall, [host](DirectServer::Call call) { return Call(*host, std::move(call)); }},
          {kFetch, [host](const DirectServer::Call& call) { return Fetch(*host, call); }}};
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
