#ifndef PARLEY_WORKER_DEVICE_PLUGIN_H_
#define PARLEY_WORKER_DEVICE_PLUGIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/device/device.h"
#include "worker/device/device_group.h"

namespace parley {

// What a shared object with devices in it has to offer. The worker loads it where the job asks for
// such a device (plugin_loader.h); it is built with the worker, from the same sources.
struct DevicePlugin {
  // Rises with each change of the interfaces that it gives out.
  static constexpr uint32_t kVersion = 6;

  uint32_t version = 0;
  const char* compiler = nullptr;  // the two must agree on the layout of classes

  // Before all that follows, whose deadlines are by the program's clock: TakeSteadyEpoch.
  void (*take_epoch)(absl::Time of_program) = nullptr;

  // How many devices there are.
  absl::StatusOr<int> (*count)() = nullptr;
  // What all processes of the machine know it by, whichever of its devices they see.
  absl::StatusOr<std::string> (*id)(int index) = nullptr;
  absl::StatusOr<std::unique_ptr<ComputeDevice>> (*open)(int index) = nullptr;

  // For a group of devices: the id that rank 0 makes and all others are told.
  absl::StatusOr<std::string> (*make_group_id)() = nullptr;
  // Waits for the other ranks. `device` is of this plugin and outlives the group.
  absl::StatusOr<std::unique_ptr<DeviceGroup>> (*join_group)(ComputeDevice& device,
                                                             const DeviceGroup::Options& options,
                                                             absl::Time deadline) = nullptr;
};

// The name of the function, extern "C" and without arguments, that returns it.
inline constexpr char kDevicePluginSymbol[] = "ParleyDevicePlugin";
using DevicePluginFunction = const DevicePlugin*();

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_PLUGIN_H_
