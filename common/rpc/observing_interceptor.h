#ifndef PARLEY_COMMON_RPC_OBSERVING_INTERCEPTOR_H_
#define PARLEY_COMMON_RPC_OBSERVING_INTERCEPTOR_H_

#include <grpcpp/support/server_interceptor.h>

#include <utility>

#include "common/rpc/server.h"

namespace parley {

// Tells an observer of each call that a server has answered. Calls that end without an answer (the
// caller went away) are not seen.
class ObservingInterceptorFactory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit ObservingInterceptorFactory(RpcObserver observer) : observer_(std::move(observer)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  const RpcObserver observer_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_OBSERVING_INTERCEPTOR_H_
