#ifndef PARLEY_COMMON_RPC_CHANNEL_H_
#define PARLEY_COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace parley {

// Largest message that our servers and clients take: a group of slices, or a view of a large model.
inline constexpr int kMaxMessageBytes = 64 << 20;

// A channel of its own (no connection shared with others of this process) to host:port. Reconnects
// at least once a second, so that a peer that comes back is found.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_CHANNEL_H_
