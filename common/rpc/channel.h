#ifndef PARLEY_COMMON_RPC_CHANNEL_H_
#define PARLEY_COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "common/security/credentials.h"

namespace parley {

// Largest message that our servers and clients take: a group of slices, or a view of a large model.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Where a call says the job's token.
inline constexpr char kTokenHeader[] = "parley-token";

// A channel of its own (no connection shared with others of this process) to host:port. Where
// it cannot connect it tries again at least once a second, so that a peer that comes back is found;
// one that takes a connection and says nothing it gives two seconds. A connection on which a call
// waits and nothing comes for 15 seconds, not even an answer to a ping, is given up. With TLS, as
// `credentials` say, the peer has to show the job's certificate too.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const SharedCredentials& credentials);

// What a channel that is called again and again needs before each call. gRPC (1.51) waits between
// two attempts to connect until a time of the wall clock, with one thread for all channels: once
// that was set back, each such wait may be as much too long, those to come, too. So from then on,
// for as long as the process lives, a channel that rests is told to try at once, at most once a
// second. Thread-safe.
class ReconnectAfterClockIsSet {
 public:
  void BeforeCall(grpc::Channel& channel);

 private:
  std::atomic<int64_t> last_ = 0;  // nanoseconds of SteadyNow
};

// What each call of a job without TLS has to say; before the call is made.
void SayToken(const SharedCredentials& credentials, grpc::ClientContext& context);

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_CHANNEL_H_
