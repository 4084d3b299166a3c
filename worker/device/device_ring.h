#ifndef PARLEY_WORKER_DEVICE_DEVICE_RING_H_
#define PARLEY_WORKER_DEVICE_DEVICE_RING_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace parley {

// A few blocks of a device's memory that streams use by turns, for buckets on their way. Nobody
// waits on the host: the stream that writes a block next waits for the one that has used it last.
// One thread at a time.
class DeviceRing {
 public:
  // Allocates them. ResourceExhausted as ComputeDevice::Allocate.
  static absl::StatusOr<std::unique_ptr<DeviceRing>> Make(ComputeDevice& device,
                                                          const std::string& what, size_t blocks,
                                                          size_t bytes);
  // Waits for the blocks' users.
  ~DeviceRing();

  // The block whose turn it is. What `writer` is given from now on begins when its last user is
  // done.
  absl::StatusOr<size_t> Take(StreamId writer);
  std::byte* block(size_t i) const { return blocks_[i].memory.data(); }
  size_t block_bytes() const { return blocks_.front().memory.size(); }
  // What `reader` has been given until now is the last that uses the block.
  absl::Status Release(size_t block, StreamId reader);

 private:
  struct Block {
    DeviceBuffer memory;
    std::unique_ptr<DeviceEvent> free;  // its last user is done
    bool used = false;
  };

  explicit DeviceRing(ComputeDevice& device) : device_(device) {}

  ComputeDevice& device_;
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_DEVICE_RING_H_
