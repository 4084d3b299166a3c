#ifndef PARLEY_SERVER_PARAMETER_SHARD_SERVICE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <utility>

#include "common/worker_threads.h"
#include "proto/parameter_shard.grpc.pb.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// All methods by callbacks, those that carry tensors on bytes.
using CallbackParameterShard = ParameterShard::WithRawCallbackMethod_Pull<
    ParameterShard::WithCallbackMethod_Initialize<ParameterShard::WithRawCallbackMethod_Push<
        ParameterShard::WithCallbackMethod_Complete<ParameterShard::WithCallbackMethod_Enter<
            ParameterShard::WithCallbackMethod_Close<ParameterShard::WithCallbackMethod_Decide<
                ParameterShard::WithCallbackMethod_Advance<
                    ParameterShard::WithCallbackMethod_WhyFailed<
                        ParameterShard::WithCallbackMethod_FindDirect<
                            ParameterShard::Service>>>>>>>>>>;

// The ParameterShard service over a LockedShard: decodes, calls, encodes. Runs on gRPC's threads,
// none of which waits: there are as few as two, heartbeats need them too, and a shard that carries
// out a large step would else pass for dead. What comes while the shard is busy is for a thread of
// the service's own. Push adds from the memory in which gRPC has received the tensors, and Pull
// answers with the memory of the slices itself (common/rpc/tensor_wire.h).
class ShardService final : public CallbackParameterShard {
 public:
  // `shard` must outlive the server, and the server's shutdown come before this object's end.
  // direct: where direct connections are taken, if they are.
  explicit ShardService(LockedShard* shard, FindDirectReply direct = {})
      : shard_(shard), direct_(std::move(direct)) {}

  grpc::ServerUnaryReactor* Initialize(grpc::CallbackServerContext* context,
                                       const InitializeRequest* request,
                                       InitializeReply* reply) override;
  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Complete(grpc::CallbackServerContext* context,
                                     const CompleteRequest* request, CompleteReply* reply) override;
  grpc::ServerUnaryReactor* Enter(grpc::CallbackServerContext* context, const EnterRequest* request,
                                  EnterReply* reply) override;
  grpc::ServerUnaryReactor* Close(grpc::CallbackServerContext* context, const CloseRequest* request,
                                  CloseReply* reply) override;
  grpc::ServerUnaryReactor* Decide(grpc::CallbackServerContext* context,
                                   const DecideRequest* request, DecideReply* reply) override;
  grpc::ServerUnaryReactor* Advance(grpc::CallbackServerContext* context,
                                    const AdvanceRequest* request, AdvanceReply* reply) override;
  grpc::ServerUnaryReactor* Pull(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* WhyFailed(grpc::CallbackServerContext* context,
                                      const WhyFailedRequest* request,
                                      WhyFailedReply* reply) override;
  grpc::ServerUnaryReactor* FindDirect(grpc::CallbackServerContext* context,
                                       const FindDirectRequest* request,
                                       FindDirectReply* reply) override;

 private:
  // Calls the shard: now, or where it is busy as soon as it is not. `call` may look at request and
  // reply: gRPC keeps them until it is answered.
  void WhenFree(std::function<void()> call);

  LockedShard* const shard_;
  const FindDirectReply direct_;
  std::atomic<int> waiting_ = 0;  // for the thread, or in its hands
  WorkerThreads thread_{1};
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SERVICE_H_
