#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/time/time.h"
#include "common/clock/steady_now.h"
#include "common/rpc/deadline.h"

namespace parley {
namespace {

// Between two attempts to connect that ReconnectAfterClockIsSet has a channel make.
constexpr absl::Duration kAttempt = absl::Seconds(1);

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const SharedCredentials& credentials) {
  WakeGrpcWhenTheClockIsSet();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // In truth how long an attempt may take, handshake included. A coordinator to which a thousand
  // members come at once, with TLS, takes that long for the last of them.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A connection whose peer was cut off looks whole until TCP sends again, after the cut as long as
  // the cut was. One that says nothing for so long while a call waits is given up, as a direct one.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A proxy of the login node is nothing for calls within a job.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (credentials == nullptr || !credentials->tls()) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  arguments.SetSslTargetNameOverride(kTlsName);
  return grpc::CreateCustomChannel(
      address,
      grpc::SslCredentials({.pem_root_certs = credentials->authority,
                            .pem_private_key = credentials->key,
                            .pem_cert_chain = credentials->certificate}),
      arguments);
}

void ReconnectAfterClockIsSet::BeforeCall(grpc::Channel& channel) {
  if (!TheClockWasSet()) return;
  if (channel.GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) return;
  int64_t last = last_;
  const int64_t now = absl::ToUnixNanos(SteadyNow());
  if (now - last < absl::ToInt64Nanoseconds(kAttempt)) return;
  if (last_.compare_exchange_strong(last, now)) {
    grpc::experimental::ChannelResetConnectionBackoff(&channel);
  }
}

void SayToken(const SharedCredentials& credentials, grpc::ClientContext& context) {
  if (credentials == nullptr || credentials->tls()) return;
  context.AddMetadata(kTokenHeader, credentials->token);
}

}  // namespace parley
