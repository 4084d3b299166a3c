#include "worker/cuda/cuda_device.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstring>
#include <exception>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "worker/cuda/cuda_graph.h"
#include "worker/cuda/cuda_status.h"
#include "worker/cuda/kernels.h"

namespace parley {
namespace {

// Of what ends: nobody else is to find its error.
void Forget(cudaError_t error) { CudaStatus(error, "").IgnoreError(); }

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { Forget(cudaEventDestroy(event_)); }
  cudaEvent_t get() const { return event_; }

 private:
  const cudaEvent_t event_;
};

cudaEvent_t Of(const DeviceEvent& event) { return static_cast<const CudaEvent&>(event).get(); }

// What LibTorch's allocator keeps for tensors to come.
bool GiveBackUnused() {
  cudaGetLastError();
  try {
    c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

// Whoever waits looks so long without a break, and then in between; a wake-up takes about as long.
constexpr absl::Duration kLook = absl::Microseconds(50);
constexpr absl::Duration kBreak = absl::Microseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(int index) {
  auto device = absl::WrapUnique(new CudaDevice(index));
  if (absl::Status status = device->Start(); !status.ok()) return status;
  return device;
}

absl::Status CudaDevice::Start() {
  name_ = absl::StrCat("cuda:", index_);
  int count = 0;
  if (absl::Status status = Error(cudaGetDeviceCount(&count), "counting GPUs"); !status.ok()) {
    return status;
  }
  if (index_ < 0 || index_ >= count) {
    return absl::NotFoundError(absl::StrCat("there is no ", name_, " among ", count, " GPUs"));
  }
  cudaDeviceProp properties = {};
  absl::Status status = Error(cudaGetDeviceProperties(&properties, index_), "looking at the GPU");
  if (!status.ok()) return status;
  absl::StrAppend(&name_, " (", properties.name, ")");
  if (status = Use(); !status.ok()) return status;
  status = Error(ProbeKernels(),
                 absl::StrCat("this build has no kernels for a GPU of compute capability ",
                              properties.major, ".", properties.minor));
  if (!status.ok()) return status;
  for (size_t i = 0; i < kStreamCount && status.ok(); ++i) {
    if (static_cast<StreamId>(i) == StreamId::kCompute) continue;
    status =
        Error(cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking), "making a stream");
  }
  return status;
}

CudaDevice::~CudaDevice() {
  if (silent_ || !Use().ok()) return;
  for (const cudaStream_t stream : streams_) {
    if (stream != nullptr) Forget(cudaStreamDestroy(stream));
  }
}

absl::Status CudaDevice::Use() const { return Error(cudaSetDevice(index_), "choosing the GPU"); }

absl::Status CudaDevice::Error(cudaError_t error, absl::string_view what) const {
  return CudaStatus(error, absl::StrCat(name_, ": ", what));
}

absl::StatusOr<ComputeDevice::Memory> CudaDevice::memory() {
  if (absl::Status status = Use(); !status.ok()) return status;
  Memory memory;
  absl::Status status =
      Error(cudaMemGetInfo(&memory.free, &memory.total), "asking for the free memory");
  if (!status.ok()) return status;
  return memory;
}

absl::StatusOr<DeviceBuffer> CudaDevice::Got(cudaError_t error, void* memory,
                                             absl::string_view what, size_t bytes,
                                             cudaError_t (*free)(void*)) {
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is not to be found again behind the next launch
    const auto left = this->memory();
    return OutOfMemory(name_, what, bytes, left.ok() ? *left : Memory());
  }
  if (absl::Status status = Error(error, what); !status.ok()) return status;
  return DeviceBuffer(static_cast<std::byte*>(memory), bytes, [this, free](std::byte* freed) {
    if (!silent_ && Use().ok()) Forget(free(freed));
  });
}

absl::StatusOr<DeviceBuffer> CudaDevice::Allocate(absl::string_view what, size_t bytes) {
  if (absl::Status status = Use(); !status.ok()) return status;
  void* memory = nullptr;
  cudaError_t error = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (error == cudaErrorMemoryAllocation && GiveBackUnused()) {
    error = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  }
  return Got(error, memory, what, bytes, &cudaFree);
}

absl::StatusOr<ComputeDevice::Shared> CudaDevice::AllocateShared(absl::string_view what,
                                                                 size_t bytes) {
  // A handle is of all that CUDA has taken at once: its smallest is 2 MiB, which others would
  // share.
  constexpr size_t kWhole = 2 << 20;
  auto memory = Allocate(what, (bytes + kWhole - 1) / kWhole * kWhole);
  if (!memory.ok()) return memory.status();
  cudaIpcMemHandle_t handle = {};
  absl::Status status = Error(cudaIpcGetMemHandle(&handle, memory->data()), "naming memory");
  if (!status.ok()) return absl::UnavailableError(status.message());
  // Never freed: others may still have it open, and they close it in no order with this process'
  // end. CUDA leaves undefined what becomes of memory that is freed before.
  const auto* const kept = new DeviceBuffer(*std::move(memory));
  return Shared{DeviceBuffer(kept->data(), kept->size(), [](std::byte*) {}),
                std::string(handle.reserved, sizeof handle.reserved)};
}

absl::StatusOr<DeviceBuffer> CudaDevice::OpenShared(absl::string_view handle) {
  if (absl::Status status = Use(); !status.ok()) return status;
  cudaIpcMemHandle_t opened = {};
  if (handle.size() != sizeof opened.reserved) {
    return absl::UnavailableError("this names no memory of a GPU");
  }
  std::memcpy(opened.reserved, handle.data(), handle.size());
  void* memory = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&memory, opened, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) {
    cudaGetLastError();  // it is not to be found again behind the next launch
    return absl::UnavailableError(Error(error, "memory of another GPU").message());
  }
  return DeviceBuffer(static_cast<std::byte*>(memory), 0, [this](std::byte* closed) {
    if (!silent_ && Use().ok()) Forget(cudaIpcCloseMemHandle(closed));
  });
}

absl::Status CudaDevice::CopyOnDevice(StreamId to_stream, std::byte* to, const std::byte* from,
                                      size_t bytes) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream(to_stream)),
               "copying between GPUs");
}

absl::StatusOr<DeviceBuffer> CudaDevice::AllocatePinned(absl::string_view what, size_t bytes) {
  if (absl::Status status = Use(); !status.ok()) return status;
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, bytes == 0 ? 1 : bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  return Got(error, memory, absl::StrCat("pinned memory for ", what), bytes, &cudaFreeHost);
}

absl::StatusOr<DeviceBuffer> CudaDevice::Pin(absl::string_view what,
                                             absl::Span<const std::byte> memory, bool read_only) {
  if (absl::Status status = Use(); !status.ok()) return status;
  auto* const begin = const_cast<std::byte*>(memory.data());
  const unsigned flags =
      cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : cudaHostRegisterMapped);
  const cudaError_t error = cudaHostRegister(begin, memory.size(), flags);
  if (error != cudaSuccess) {
    cudaGetLastError();  // it is not to be found again behind the next launch
    return absl::UnavailableError(
        absl::StrCat(name_, ": pinning ", what, ": ", cudaGetErrorString(error)));
  }
  return DeviceBuffer(begin, memory.size(), [this](std::byte* pinned) {
    if (!silent_ && Use().ok()) Forget(cudaHostUnregister(pinned));
  });
}

absl::Status CudaDevice::CopyToHost(StreamId stream, std::byte* host, const std::byte* device,
                                    size_t bytes) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, this->stream(stream)),
               "copying to the host");
}

absl::Status CudaDevice::CopyToDevice(StreamId stream, std::byte* device, const std::byte* host,
                                      size_t bytes) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, this->stream(stream)),
               "copying to the device");
}

absl::Status CudaDevice::CopyPartsToDevice(StreamId stream, absl::Span<const HostPart> parts) {
  // Between copies of 1 MiB each that are given one by one the bus stands still for a tenth of the
  // time. CUDA's default stream takes no batches.
  if (parts.size() < 2 || stream == StreamId::kCompute || !has_batches_) {
    return ComputeDevice::CopyPartsToDevice(stream, parts);
  }
  if (absl::Status status = Use(); !status.ok()) return status;
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<size_t> bytes;
  for (const HostPart& part : parts) {
    to.push_back(part.device);
    from.push_back(part.host.data());
    bytes.push_back(part.host.size());
  }
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t of_all = 0;  // from the first on
  const cudaError_t copied =
      cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), parts.size(), &attributes, &of_all,
                           1, this->stream(stream));
  if (copied == cudaErrorNotSupported || copied == cudaErrorCallRequiresNewerDriver) {
    cudaGetLastError();
    has_batches_ = false;
    return ComputeDevice::CopyPartsToDevice(stream, parts);
  }
  return Error(copied, "copying to the device");
}

absl::Status CudaDevice::Clear(StreamId stream, std::byte* memory, size_t bytes) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(cudaMemsetAsync(memory, 0, bytes, this->stream(stream)), "clearing memory");
}

absl::Status CudaDevice::Pack(StreamId stream, absl::Span<const Piece> pieces, float scale,
                              BucketType type, std::byte* bucket) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(LaunchPack(pieces.data(), pieces.size(), scale, type, bucket, this->stream(stream)),
               "packing a bucket");
}

absl::Status CudaDevice::Unpack(StreamId stream, absl::Span<const Piece> pieces, BucketType type,
                                const std::byte* bucket) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(LaunchUnpack(pieces.data(), pieces.size(), type, bucket, this->stream(stream)),
               "unpacking a bucket");
}

absl::Status CudaDevice::Unscale(StreamId stream, float* values, uint64_t count, float factor,
                                 uint32_t* bad) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(LaunchUnscale(values, count, factor, bad, this->stream(stream)),
               "unscaling gradients");
}

absl::Status CudaDevice::CopyNonzero(StreamId stream, float* host, const float* device,
                                     uint64_t count, uint8_t* nonzero) {
  if (absl::Status status = Use(); !status.ok()) return status;
  // Both are pinned, and so mapped where there is one address space for host and device.
  void* mapped_host = nullptr;
  void* mapped_nonzero = nullptr;
  if (cudaHostGetDevicePointer(&mapped_host, host, 0) != cudaSuccess ||
      cudaHostGetDevicePointer(&mapped_nonzero, nonzero, 0) != cudaSuccess) {
    cudaGetLastError();  // it is not to be found again behind the next launch
    return absl::UnavailableError(
        absl::StrCat(name_, ": the host's memory is not mapped for its kernels"));
  }
  return Error(LaunchCopyNonzero(static_cast<float*>(mapped_host), device, count,
                                 static_cast<uint8_t*>(mapped_nonzero), this->stream(stream)),
               "copying what is not zero");
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> CudaDevice::EventWith(unsigned flags) {
  if (absl::Status status = Use(); !status.ok()) return status;
  cudaEvent_t event = nullptr;
  absl::Status status = Error(cudaEventCreateWithFlags(&event, flags), "making an event");
  if (!status.ok()) return status;
  return std::make_unique<CudaEvent>(event);
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> CudaDevice::MakeEvent() {
  return EventWith(cudaEventDisableTiming);
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> CudaDevice::MakeTimedEvent() {
  return EventWith(cudaEventDefault);
}

absl::StatusOr<absl::Duration> CudaDevice::Between(const DeviceEvent& begin,
                                                   const DeviceEvent& end) {
  if (absl::Status status = Use(); !status.ok()) return status;
  float milliseconds = 0;
  absl::Status status =
      Error(cudaEventElapsedTime(&milliseconds, Of(begin), Of(end)), "asking when events passed");
  if (!status.ok()) return status;
  return absl::Milliseconds(static_cast<double>(milliseconds));
}

absl::Status CudaDevice::Record(DeviceEvent& event, StreamId stream) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(cudaEventRecord(Of(event), this->stream(stream)), "recording an event");
}

absl::Status CudaDevice::Wait(StreamId stream, const DeviceEvent& event) {
  if (absl::Status status = Use(); !status.ok()) return status;
  return Error(cudaStreamWaitEvent(this->stream(stream), Of(event), 0), "waiting for an event");
}

absl::StatusOr<bool> CudaDevice::HasPassed(const DeviceEvent& event) {
  if (absl::Status status = Use(); !status.ok()) return status;
  const cudaError_t state = cudaEventQuery(Of(event));
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // it is not to be found again behind the next launch
    return false;
  }
  if (absl::Status status = Error(state, "the GPU's work"); !status.ok()) return status;
  return true;
}

absl::Status CudaDevice::Await(const DeviceEvent& event, absl::Time deadline) {
  if (absl::Status status = Use(); !status.ok()) return status;
  const absl::Time began = SteadyNow();
  while (true) {
    const cudaError_t state = cudaEventQuery(Of(event));
    if (state != cudaErrorNotReady) return Error(state, "waiting for the GPU's work");
    cudaGetLastError();  // it is not to be found again behind the next launch
    const absl::Time now = SteadyNow();
    // One that was silent for so long once is not waited for again, by destructors least of all.
    if (now > deadline || silent_) {
      silent_ = true;
      return absl::DeadlineExceededError(absl::StrCat(name_, " has not ended its work within ",
                                                      absl::FormatDuration(now - began)));
    }
    if (now - began > kLook) absl::SleepFor(kBreak);
  }
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> CudaDevice::MakeGraph() {
  return std::make_unique<CudaGraph>(name_, index_);
}

}  // namespace parley
