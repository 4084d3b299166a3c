// A plugin whose devices are fake: the worker's whole way to a GPU, in plain memory. Compiled with
// FAKE_VERSION, also one of another build.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "worker/device/fake_device.h"
#include "worker/device/plugin.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION (parley::DevicePlugin::kVersion)
#endif

namespace parley {
namespace {

absl::StatusOr<int> Count() { return 2; }

// Ends the process where its user has left anything unordered.
class StrictDevice final : public FakeDevice {
 public:
  StrictDevice() : FakeDevice({.for_tensors_of_the_cpu = true}) {}
  ~StrictDevice() override {
    for (const std::string& violation : violations()) {
      std::fprintf(stderr, "fake device: %s\n", violation.c_str());
    }
    if (!violations().empty()) std::abort();
  }
};

absl::StatusOr<std::unique_ptr<ComputeDevice>> Open(int /*index*/) {
  return std::make_unique<StrictDevice>();
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
