#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_GPU_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_GPU_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/system_files.h"
#include "proto/job.pb.h"

namespace parley {

// What the machine has for CUDA.
struct GpuFacts {
  std::string library_error;  // why libcuda.so.1 cannot be loaded; empty: it is
  int start_error = 0;        // CUDA's, of cuInit; 0: the driver has started
  int gpus = 0;
  int cuda_version = 0;       // the newest that the driver is for: 13000 is 13.0; 0: not told
  std::string kernel_driver;  // the kernel's half, "580.82.07"; empty: it is not loaded
  std::vector<std::string> closed_devices;  // of /dev, which this user may not open
  bool has_devices = false;                 // /dev/nvidiactl
  std::string plugin;                       // libparley_cuda.so's path
  bool has_plugin = false;
  uint64_t shared_memory = 0;  // bytes free in /dev/shm, through which NCCL goes
};

// Asks the driver itself, which may take its time: for a limited one.
GpuFacts LookAtGpus(const SystemFiles& files, const std::string& plugin);

// Whether a job can compute as it asks. try_all: lets a worker load all that it needs, and is asked
// where nothing was found missing. With AUTO nothing fails: the job computes on the CPU.
Findings CheckGpus(const GpuFacts& facts, Device asked,
                   const std::function<absl::Status()>& try_all);

// The CUDA with which parley is built (deploy/cuda_libraries.txt): drivers for its major version or
// a later one will do.
inline constexpr int kCudaMajor = 13;

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_GPU_CHECK_H_
