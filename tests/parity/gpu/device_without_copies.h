#ifndef PARLEY_TESTS_PARITY_GPU_DEVICE_WITHOUT_COPIES_H_
#define PARLEY_TESTS_PARITY_GPU_DEVICE_WITHOUT_COPIES_H_

#include <cstddef>
#include <cstdint>

#include "worker/device/forwarding_device.h"

namespace parley {

// A device whose copies to the host are left out, for benchmarks: what a step takes apart from
// them. All else is the other device's.
class DeviceWithoutCopies final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  absl::Status CopyToHost(StreamId /*stream*/, std::byte* /*host*/, const std::byte* /*device*/,
                          size_t /*bytes*/) override {
    return absl::OkStatus();
  }
  absl::Status CopyNonzero(StreamId /*stream*/, float* /*host*/, const float* /*device*/,
                           uint64_t /*count*/, uint8_t* /*nonzero*/) override {
    return absl::UnavailableError("nothing is copied to the host");
  }
};

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_GPU_DEVICE_WITHOUT_COPIES_H_
