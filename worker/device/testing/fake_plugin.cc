// A plugin whose devices are fake: the worker's whole way to a GPU, in plain memory. Compiled with
// FAKE_VERSION, also one of another build.
#include <cstdlib>
#include <memory>

#include "worker/device/fake_device.h"
#include "worker/device/plugin.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION parley::DevicePlugin::kVersion
#endif

namespace parley {
namespace {

absl::StatusOr<int> Count() { return 2; }

absl::StatusOr<std::unique_ptr<ComputeDevice>> Open(int /*index*/) {
  return std::make_unique<FakeDevice>();
}

absl::StatusOr<std::string> MakeGroupId() { return absl::UnimplementedError("no groups"); }

absl::StatusOr<std::unique_ptr<DeviceGroup>> JoinGroup(ComputeDevice& /*device*/,
                                                       const DeviceGroup::Options& /*options*/,
                                                       absl::Time /*deadline*/) {
  return absl::UnimplementedError("no groups");
}

}  // namespace
}  // namespace parley

extern "C" const parley::DevicePlugin* ParleyDevicePlugin() {
  static constexpr parley::DevicePlugin kPlugin = {FAKE_VERSION,         __VERSION__,
                                                   &parley::Count,       &parley::Open,
                                                   &parley::MakeGroupId, &parley::JoinGroup};
  return &kPlugin;
}
