#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_SERVICE_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/reference/reference_host.h"
#include "proto/remote_reference.grpc.pb.h"

namespace parley {

// All methods by callbacks, those that carry values on bytes.
using CallbackRemoteReferences = RemoteReferences::WithRawCallbackMethod_Call<
    RemoteReferences::WithRawCallbackMethod_Fetch<RemoteReferences::WithCallbackMethod_FindDirect<
        RemoteReferences::WithCallbackMethod_Open<RemoteReferences::WithCallbackMethod_Renew<
            RemoteReferences::WithCallbackMethod_Leave<RemoteReferences::WithCallbackMethod_Fork<
                RemoteReferences::WithCallbackMethod_Drop<RemoteReferences::Service>>>>>>>>;

// The RemoteReferences service over a ReferenceHost: decodes, calls, encodes. Runs on gRPC's
// threads, none of which waits.
class ReferenceService final : public CallbackRemoteReferences {
 public:
  // Refuses all (Unavailable) until it has a host: a server's own address is known only when it
  // serves.
  // direct: where direct connections are taken, if they are.
  void Serve(std::shared_ptr<ReferenceHost> host, const FindDirectReply& direct);

  grpc::ServerUnaryReactor* FindDirect(grpc::CallbackServerContext* context,
                                       const FindDirectRequest* request,
                                       FindDirectReply* reply) override;
  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context,
                                 const OpenSessionRequest* request,
                                 OpenSessionReply* reply) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const RenewSessionRequest* request,
                                  RenewSessionReply* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const LeaveSessionRequest* request,
                                  LeaveSessionReply* reply) override;
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Fork(grpc::CallbackServerContext* context, const ForkRequest* request,
                                 ForkReply* reply) override;
  grpc::ServerUnaryReactor* Drop(grpc::CallbackServerContext* context, const DropRequest* request,
                                 DropReply* reply) override;
  grpc::ServerUnaryReactor* Fetch(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* reply) override;

 private:
  // Runs body(space, time, replies) under the host's lock; Unavailable ends the call where there is
  // no host, or no more.
  template <class Body>
  grpc::ServerUnaryReactor* With(grpc::CallbackServerContext* context, const Body& body);
  bool TakesDirect();

  absl::Mutex mu_;
  std::shared_ptr<ReferenceHost> host_ ABSL_GUARDED_BY(mu_);
  FindDirectReply direct_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_SERVICE_H_
