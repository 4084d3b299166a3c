#include "worker/device/chosen_device.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "worker/device/plugin_loader.h"

namespace parley {
namespace {

struct Found {
  const DevicePlugin* plugin = nullptr;
  int gpus = 0;
};

// The driver first: without it nothing else is of use.
absl::StatusOr<Found> FindGpus(const std::string& path) {
  const auto gpus = CountGpus();
  if (!gpus.ok()) return gpus.status();
  const auto plugin = LoadDevicePlugin(path);
  if (!plugin.ok()) return plugin.status();
  // What the driver finds CUDA must also be able to use: a driver can be too old.
  const auto usable = (*plugin)->count();
  if (!usable.ok()) return absl::FailedPreconditionError(usable.status().message());
  if (*usable < 1)
    return absl::FailedPreconditionError("this machine has no GPU that CUDA can use");
  return Found{*plugin, *usable};
}

}  // namespace

absl::StatusOr<ChosenDevice> ChosenDevice::Choose(Device asked, const std::string& plugin) {
  ChosenDevice chosen;
  if (asked != CUDA && asked != AUTO) return chosen;
  const auto found = FindGpus(plugin);
  if (found.ok()) {
    chosen.plugin_ = found->plugin;
    chosen.gpus_ = found->gpus;
    return chosen;
  }
  if (asked == CUDA) {
    return absl::FailedPreconditionError(
        absl::StrCat("device: CUDA cannot be had: ", found.status().message()));
  }
  chosen.why_cpu_ = std::string(found.status().message());
  return chosen;
}

absl::StatusOr<std::unique_ptr<ComputeDevice>> ChosenDevice::Open(uint32_t ordinal) {
  if (!is_gpu()) return nullptr;
  const auto first = static_cast<int>(ordinal % static_cast<uint32_t>(gpus_));
  // The last one is `first` again, which is shared where none is free.
  for (int k = 0; k <= gpus_; ++k) {
    const int index = (first + k) % gpus_;
    auto id = plugin_->id(index);
    if (!id.ok()) return id.status();
    id_ = *std::move(id);
    if (k < gpus_) claim_ = GpuClaim::Take(id_);
    if (claim_ != nullptr || k == gpus_) return plugin_->open(index);
  }
  return absl::InternalError("no GPU was tried");
}

std::string DevicePluginPath() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "libparley_cuda.so").string();
}

}  // namespace parley
