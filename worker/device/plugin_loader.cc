#include "worker/device/plugin_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

std::string LastError() {
  const char* const text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

absl::StatusOr<int> CountGpus() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("this machine has no NVIDIA driver (", LastError(), ")"));
  }
  // As cuda.h has them, which is not there where the worker is built.
  using Init = int(unsigned);
  using Count = int(int*);
  auto* const init = reinterpret_cast<Init*>(dlsym(driver, "cuInit"));
  auto* const count = reinterpret_cast<Count*>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count == nullptr) {
    return absl::FailedPreconditionError("libcuda.so.1 on this machine is no NVIDIA driver");
  }
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
  int gpus = 0;
  int error = init(0);
  if (error == 0) error = count(&gpus);
  if (error == kNoDevice || (error == 0 && gpus < 1)) {
    return absl::FailedPreconditionError(
        "this machine has no GPU: its NVIDIA driver finds none (is CUDA_VISIBLE_DEVICES empty?)");
  }
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the NVIDIA driver of this machine does not start: CUDA's error ", error));
  }
  return gpus;
}

absl::StatusOr<const DevicePlugin*> LoadDevicePlugin(const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is missing, which has all that parley needs for GPUs: deploy/build --cuda makes it "
        "in out/bin, and programs look for it beside themselves"));
  }
  // Global, so that LibTorch, loaded with it, finds its own other half.
  void* const plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (plugin == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("a CUDA library for ", path,
                                                      " is missing or does not fit (", LastError(),
                                                      "): deploy/bootstrap cuda"));
  }
  auto* const function =
      reinterpret_cast<DevicePluginFunction*>(dlsym(plugin, kDevicePluginSymbol));
  if (function == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no plugin for parley-worker"));
  }
  const DevicePlugin* const offered = function();
  if (offered->version != DevicePlugin::kVersion || std::string(offered->compiler) != __VERSION__) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of another build than this program: deploy/build --cuda"));
  }
  offered->take_epoch(SteadyEpoch());
  return offered;
}

}  // namespace parley
