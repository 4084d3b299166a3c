#ifndef PARLEY_SERVER_PIPELINE_STAGE_PEER_TENSOR_H_
#define PARLEY_SERVER_PIPELINE_STAGE_PEER_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/reference/remote_value.h"
#include "proto/types.pb.h"

namespace parley {

// A tensor in the memory of another stage's device, on the same machine: what a message has of it
// in place of its bytes. Row-major, as a ValueTensor.
struct PeerTensor {
  std::string handle;        // of a block (ComputeDevice::OpenShared)
  uint64_t block_bytes = 0;  // of that
  uint64_t offset = 0;       // in it
  DataType dtype = DATA_TYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
};

// Two of a message for each tensor.
std::vector<ValueTensor> ToValues(absl::Span<const PeerTensor> tensors);
// InvalidArgument where no stage has made it, or a tensor is not within its block.
absl::StatusOr<std::vector<PeerTensor>> PeerTensorsOf(absl::Span<const ValueTensor> values);

// A handle alone, to be tried; may be empty.
ValueTensor HandleValue(const std::string& handle);
absl::StatusOr<std::string> HandleOf(const ValueTensor& value);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_PEER_TENSOR_H_
