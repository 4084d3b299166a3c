#ifndef PARLEY_SERVER_PARAMETER_SHARD_SERVICE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "proto/parameter_shard.grpc.pb.h"
#include "server/parameter_shard/locked_shard.h"

namespace parley {

// All methods by callbacks, those that carry tensors on bytes.
using CallbackParameterShard = ParameterShard::WithRawCallbackMethod_Pull<
    ParameterShard::WithCallbackMethod_Initialize<ParameterShard::WithRawCallbackMethod_Push<
        ParameterShard::WithCallbackMethod_Complete<ParameterShard::WithCallbackMethod_Enter<
            ParameterShard::WithCallbackMethod_Close<ParameterShard::WithCallbackMethod_Decide<
                ParameterShard::WithCallbackMethod_Advance<
                    ParameterShard::WithCallbackMethod_WhyFailed<ParameterShard::Service>>>>>>>>>;

// The ParameterShard service over a LockedShard: decodes, calls, encodes. Runs on gRPC's threads,
// none of which waits. Push adds from the memory in which gRPC has received the tensors, and Pull
// answers with the memory of the slices itself (common/rpc/tensor_wire.h).
class ShardService final : public CallbackParameterShard {
 public:
  // `shard` must outlive the server.
  explicit ShardService(LockedShard* shard) : shard_(shard) {}

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

 private:
  LockedShard* const shard_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SERVICE_H_
