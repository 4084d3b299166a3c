#include "server/parameter_shard/direct_methods.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "server/parameter_shard/parked_time.h"
#include "server/parameter_shard/pulled_version.h"

namespace parley {
namespace {

// How a call of `method` that came now is answered.
template <class Reply>
Done<Reply> Answering(const char* method, const DirectServer::Call& call,
                      const RpcObserver& observer) {
  return [answer = call.answer, method, observer,
          came = SteadyNow()](const absl::StatusOr<Reply>& reply) {
    answer(reply.status(), reply.ok() ? *reply : Reply(), {});
    if (observer) observer(method, static_cast<int>(reply.status().code()), SteadyNow() - came);
  };
}

template <class Request>
absl::StatusOr<Request> Parse(const std::string& message) {
  Request request;
  if (request.ParseFromString(message)) return request;
  return absl::InvalidArgumentError(absl::StrCat("not a ", request.GetTypeName()));
}

absl::Status Push(LockedShard& shard, const DirectServer::Call& call, const RpcObserver& observer) {
  const absl::StatusOr<PushRequest> request = Parse<PushRequest>(call.message);
  if (!request.ok()) return request.status();
  if (request->slices_size() != 0) return absl::InvalidArgumentError("slices within the message");
  const absl::Time now = SteadyNow();
  shard.Push(*request, call.slices, {now, now + call.patience},
             Answering<PushReply>("Push", call, observer));
  return absl::OkStatus();
}

absl::Status Complete(LockedShard& shard, const DirectServer::Call& call,
                      const RpcObserver& observer) {
  const absl::StatusOr<CompleteRequest> request = Parse<CompleteRequest>(call.message);
  if (!request.ok()) return request.status();
  const absl::Time now = SteadyNow();
  shard.Complete(*request, {now, now + Parked(call.patience)},
                 Answering<CompleteReply>("Complete", call, observer));
  return absl::OkStatus();
}

absl::Status Pull(LockedShard& shard, const DirectServer::Call& call, const RpcObserver& observer) {
  const absl::StatusOr<PullRequest> request = Parse<PullRequest>(call.message);
  if (!request.ok()) return request.status();
  const absl::Time now = SteadyNow();
  shard.Pull(*request, {now, now + Parked(call.patience)},
             [answer = call.answer, observer, now](const absl::StatusOr<PulledVersion>& pulled) {
               if (pulled.ok()) {
                 answer(absl::OkStatus(), HeadOf(*pulled), SlicesOf(*pulled));
               } else {
                 answer(pulled.status(), PullReply(), {});
               }
               if (!observer) return;
               observer("Pull", static_cast<int>(pulled.status().code()), SteadyNow() - now);
             });
  return absl::OkStatus();
}

}  // namespace

DirectServer::Methods DirectShardMethods(LockedShard* shard, RpcObserver observer) {
  const auto method = [shard, observer = std::move(observer)](auto body) {
    return [shard, observer, body](const DirectServer::Call& call) {
      return body(*shard, call, observer);
    };
  };
  return {{"Push", method(Push)}, {"Complete", method(Complete)}, {"Pull", method(Pull)}};
}

}  // namespace parley
