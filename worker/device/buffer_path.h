#ifndef PARLEY_WORKER_DEVICE_BUFFER_PATH_H_
#define PARLEY_WORKER_DEVICE_BUFFER_PATH_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/device/device.h"

namespace parley {

// How a network's buffers (running means, counts) go between a device and the host: many small
// tensors, for which a copy and a wait each would cost more than forward does. They go packed, by
// one copy, as words of 4 bytes of whatever type; those that are none by one each. Forward alone
// changes them, so they come to the host while backward goes on:
//
//   compute:  forward | pack | backward ...
//                          \ event
//   to host:                 copies
//                                  \ event
//   host:                            takes them
//
// The training thread's.
class BufferPath {
 public:
  struct Place {
    std::byte* device = nullptr;
    size_t bytes = 0;

    bool is_packed() const { return bytes % 4 == 0; }
  };

  // The device outlives it. Room for so many bytes in so many places.
  static absl::StatusOr<std::unique_ptr<BufferPath>> Make(ComputeDevice& device, size_t bytes,
                                                          size_t places);
  // Waits for the copies that are under way.
  ~BufferPath();

  // Gives the streams what brings them to the host, as they are where the compute stream is now.
  // Receive comes before the next Fetch or Bring, and before anything else writes to them.
  absl::Status Fetch(absl::Span<const Place> places);
  // Waits for that, and gives each to `take`, by index in Fetch's places.
  using Take = absl::FunctionRef<void(size_t place, absl::Span<const std::byte> values)>;
  absl::Status Receive(absl::Time deadline, Take take);

  // Brings values to the device, `fill` writes them; what the compute stream is given from then on
  // has them.
  using Fill = absl::FunctionRef<void(size_t place, absl::Span<std::byte> values)>;
  absl::Status Bring(absl::Span<const Place> places, absl::Time deadline, Fill fill);

 private:
  explicit BufferPath(ComputeDevice& device) : device_(device) {}
  // Where each lies in a block: those that are packed first. The bytes of these.
  size_t Lay(absl::Span<const Place> places);
  std::vector<Piece> Pieces(absl::Span<const Place> places) const;

  ComputeDevice& device_;
  DeviceBuffer on_device_;  // packed
  DeviceBuffer fetched_;    // pinned
  DeviceBuffer brought_;    // pinned
  std::unique_ptr<DeviceEvent> packed_, fetched_all_, used_, brought_all_;
  std::vector<size_t> offsets_;  // of the places of the last call
  std::vector<Place> fetching_;  // of Fetch
  std::vector<size_t> fetching_offsets_;
  bool is_fetching_ = false, has_brought_ = false;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_BUFFER_PATH_H_
