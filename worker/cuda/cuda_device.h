#ifndef PARLEY_WORKER_CUDA_CUDA_DEVICE_H_
#define PARLEY_WORKER_CUDA_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace parley {

// A GPU by CUDA. It owns its streams but for the compute stream, which is the default one: LibTorch
// uses that where it is told nothing else, on the threads of backward too. The others do not wait
// for the default stream by themselves. Thread-safe.
class CudaDevice final : public ComputeDevice {
 public:
  // NotFound where there is no such GPU.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(int index);
  ~CudaDevice() override;

  const std::string& name() const override { return name_; }
  std::string torch_device() const override { return "cuda:" + std::to_string(index_); }
  absl::StatusOr<Memory> memory() override;
  absl::StatusOr<DeviceBuffer> Allocate(absl::string_view what, size_t bytes) override;
  absl::StatusOr<Shared> AllocateShared(absl::string_view what, size_t bytes) override;
  absl::StatusOr<DeviceBuffer> OpenShared(absl::string_view handle) override;
  absl::Status CopyOnDevice(StreamId stream, std::byte* to, const std::byte* from,
                            size_t bytes) override;
  absl::StatusOr<DeviceBuffer> AllocatePinned(absl::string_view what, size_t bytes) override;
  absl::StatusOr<DeviceBuffer> Pin(absl::string_view what, absl::Span<const std::byte> memory,
                                   bool read_only) override;
  absl::Status CopyToHost(StreamId stream, std::byte* host, const std::byte* device,
                          size_t bytes) override;
  absl::Status CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                            size_t bytes) override;
  absl::Status CopyPartsToDevice(StreamId stream, absl::Span<const HostPart> parts) override;
  absl::Status Clear(StreamId stream, std::byte* memory, size_t bytes) override;
  absl::Status Pack(StreamId stream, absl::Span<const Piece> pieces, float scale, BucketType type,
                    std::byte* bucket) override;
  absl::Status Unpack(StreamId stream, absl::Span<const Piece> pieces, BucketType type,
                      const std::byte* bucket) override;
  absl::Status Unscale(StreamId stream, float* values, uint64_t count, float factor,
                       uint32_t* bad) override;
  absl::Status CopyNonzero(StreamId stream, float* host, const float* device, uint64_t count,
                           uint8_t* nonzero) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent() override;
  absl::Status Record(DeviceEvent& event, StreamId stream) override;
  absl::Status Wait(StreamId stream, const DeviceEvent& event) override;
  absl::Status Await(const DeviceEvent& event, absl::Time deadline) override;
  absl::StatusOr<bool> HasPassed(const DeviceEvent& event) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeTimedEvent() override;
  absl::StatusOr<absl::Duration> Between(const DeviceEvent& begin, const DeviceEvent& end) override;

  absl::StatusOr<std::unique_ptr<DeviceGraph>> MakeGraph() override;

  cudaStream_t stream(StreamId id) const { return streams_[static_cast<size_t>(id)]; }
  // CUDA's calls are about the calling thread's device: makes it this one.
  absl::Status Use() const;

 private:
  explicit CudaDevice(int index) : index_(index) {}
  absl::Status Start();
  absl::Status Error(cudaError_t error, absl::string_view what) const;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> EventWith(unsigned flags);
  absl::StatusOr<DeviceBuffer> Got(cudaError_t error, void* memory, absl::string_view what,
                                   size_t bytes, cudaError_t (*free)(void*));

  const int index_;
  std::string name_;
  std::atomic<bool> has_batches_ = true;  // of copies: until the driver says it has none
  // Did not answer in time. To free its memory, or a stream, would wait for it without an end.
  std::atomic<bool> silent_ = false;
  std::array<cudaStream_t, kStreamCount> streams_ = {};
};

}  // namespace parley

#endif  // PARLEY_WORKER_CUDA_CUDA_DEVICE_H_
