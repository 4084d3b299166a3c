#include "worker/device/gpu_monitor.h"

#include <dlfcn.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace parley {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);

constexpr int kSuccess = 0;
constexpr unsigned kSentByGpu = 0;  // NVML_PCIE_UTIL_TX_BYTES
constexpr unsigned kReceivedByGpu = 1;

}  // namespace

// As nvml.h has them, which is not there where the worker is built.
struct GpuMonitor::Nvml {
  using Gpu = void*;
  struct Memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
  };
  struct Utilization {
    unsigned gpu;  // percent
    unsigned memory;
  };

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*text)(int) = nullptr;
  int (*find)(const char*, Gpu*) = nullptr;
  int (*memory)(Gpu, Memory*) = nullptr;
  int (*utilization)(Gpu, Utilization*) = nullptr;
  int (*throughput)(Gpu, unsigned, unsigned*) = nullptr;  // KB/s
  Gpu gpu = nullptr;

  template <class Function>
  static bool Load(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
  }
};

absl::StatusOr<std::unique_ptr<GpuMonitor>> GpuMonitor::Start(const std::string& pci_id,
                                                              Metrics& metrics) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat("NVML is not there (", why == nullptr ? "no reason given" : why, ")"));
  }
  auto nvml = std::make_unique<Nvml>();
  if (!Nvml::Load(library, "nvmlInit_v2", nvml->init) ||
      !Nvml::Load(library, "nvmlShutdown", nvml->shutdown) ||
      !Nvml::Load(library, "nvmlErrorString", nvml->text) ||
      !Nvml::Load(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml->find) ||
      !Nvml::Load(library, "nvmlDeviceGetMemoryInfo", nvml->memory) ||
      !Nvml::Load(library, "nvmlDeviceGetUtilizationRates", nvml->utilization) ||
      !Nvml::Load(library, "nvmlDeviceGetPcieThroughput", nvml->throughput)) {
    return absl::FailedPreconditionError("libnvidia-ml.so.1 on this machine is no NVML");
  }
  int result = nvml->init();
  if (result == kSuccess) {
    result = nvml->find(pci_id.c_str(), &nvml->gpu);
    if (result != kSuccess) nvml->shutdown();
  }
  if (result != kSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("NVML says of the GPU at ", pci_id, ": ", nvml->text(result)));
  }
  return absl::WrapUnique(new GpuMonitor(std::move(nvml), metrics));
}

GpuMonitor::GpuMonitor(std::unique_ptr<Nvml> nvml, Metrics& metrics)
    : nvml_(std::move(nvml)),
      memory_used_(metrics.Gauge("parley_gpu_memory_used_bytes",
                                 "Memory of this worker's GPU in use, by whomever.")),
      memory_total_(metrics.Gauge("parley_gpu_memory_total_bytes", "Memory of this worker's GPU.")),
      utilization_(metrics.Gauge("parley_gpu_utilization_ratio",
                                 "Part of the time in which the GPU computed, by NVML.")),
      to_device_(metrics.Gauge("parley_gpu_bus_bytes_per_second",
                               "What crosses the GPU's bus, by NVML.",
                               {{"direction", "to_device"}})),
      to_host_(metrics.Gauge("parley_gpu_bus_bytes_per_second",
                             "What crosses the GPU's bus, by NVML.", {{"direction", "to_host"}})),
      thread_([this] {
        do {
          Look();
        } while (!over_.WaitFor(kPeriod));
      }) {}

GpuMonitor::~GpuMonitor() {
  over_.Notify();
  thread_.join();
  nvml_->shutdown();
}

void GpuMonitor::Look() {
  // What one of them does not know stays as it was: older GPUs do not count what crosses the bus.
  Nvml::Memory memory = {};
  if (nvml_->memory(nvml_->gpu, &memory) == kSuccess) {
    memory_used_.Set(static_cast<double>(memory.used));
    memory_total_.Set(static_cast<double>(memory.total));
  }
  Nvml::Utilization utilization = {};
  if (nvml_->utilization(nvml_->gpu, &utilization) == kSuccess) {
    utilization_.Set(utilization.gpu / 100.0);
  }
  unsigned kilobytes = 0;
  if (nvml_->throughput(nvml_->gpu, kReceivedByGpu, &kilobytes) == kSuccess) {
    to_device_.Set(kilobytes * 1000.0);
  }
  if (nvml_->throughput(nvml_->gpu, kSentByGpu, &kilobytes) == kSuccess) {
    to_host_.Set(kilobytes * 1000.0);
  }
}

}  // namespace parley
