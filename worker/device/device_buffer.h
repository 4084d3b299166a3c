#ifndef PARLEY_WORKER_DEVICE_DEVICE_BUFFER_H_
#define PARLEY_WORKER_DEVICE_DEVICE_BUFFER_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/types/span.h"

namespace parley {

// Memory of a device, or pinned memory, which it owns and gives back when it goes; before its
// device. Whoever has it sees to it that no copy uses it then.
class DeviceBuffer {
 public:
  using Free = std::function<void(std::byte*)>;

  DeviceBuffer() = default;
  DeviceBuffer(std::byte* data, size_t size, Free free)
      : data_(data), size_(size), free_(std::move(free)) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        free_(std::move(other.free_)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) free_(data_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Free free_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_DEVICE_BUFFER_H_
