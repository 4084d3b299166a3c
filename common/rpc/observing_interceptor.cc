#include "common/rpc/observing_interceptor.h"

#include <cstring>
#include <string>

#include "common/clock/steady_now.h"

namespace parley {
namespace {

class ObservingInterceptor final : public grpc::experimental::Interceptor {
 public:
  ObservingInterceptor(const RpcObserver& observer, const char* method)
      : observer_(observer), method_(method), start_(SteadyNow()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      const char* slash = std::strrchr(method_, '/');
      observer_(slash == nullptr ? method_ : slash + 1, methods->GetSendStatus().error_code(),
                SteadyNow() - start_);
    }
    methods->Proceed();
  }

 private:
  const RpcObserver& observer_;  // the factory's, which the server keeps
  const char* const method_;     // lives as long as the server
  const absl::Time start_;
};

}  // namespace

grpc::experimental::Interceptor* ObservingInterceptorFactory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new ObservingInterceptor(observer_, info->method());
}

}  // namespace parley
