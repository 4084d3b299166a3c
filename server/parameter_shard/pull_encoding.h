#ifndef PARLEY_SERVER_PARAMETER_SHARD_PULL_ENCODING_H_
#define PARLEY_SERVER_PARAMETER_SHARD_PULL_ENCODING_H_

#include <grpcpp/support/byte_buffer.h>

#include "server/parameter_shard/pulled_version.h"

namespace parley {

// The bytes of a PullReply, as protobuf would write them, whose tensors are the pinned memory
// itself: the pins go when gRPC has sent it. (TensorFlow encodes its tensors alike.)
grpc::ByteBuffer EncodePullReply(const PulledVersion& pulled);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_PULL_ENCODING_H_
