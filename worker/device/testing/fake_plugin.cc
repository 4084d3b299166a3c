// A plugin whose devices are fake: the worker's whole way to a GPU, in plain memory. Compiled with
// FAKE_VERSION, also one of another build. PARLEY_FAKE_DEVICE_BYTES: how much memory each has;
// PARLEY_FAKE_DEVICE_IS_ALONE: none reaches another one's; PARLEY_FAKE_DRIVER_IS_OLD: CUDA can use
// none of them.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "worker/device/fake_device.h"
#include "worker/device/plugin.h"
#include "worker/device/testing/fake_group.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION (parley::DevicePlugin::kVersion)
#endif

namespace parley {
namespace {

absl::StatusOr<int> Count() {
  if (std::getenv("PARLEY_FAKE_DRIVER_IS_OLD") == nullptr) return 2;
  return absl::FailedPreconditionError(
      "the NVIDIA driver of this machine is too old for CUDA 13.0");
}

// Ends the process where its user has left anything unordered.
class StrictDevice final : public FakeDevice {
 public:
  explicit StrictDevice(const Options& options) : FakeDevice(options) {}
  ~StrictDevice() override {
    for (const std::string& violation : violations()) {
      std::fprintf(stderr, "fake device: %s\n", violation.c_str());
    }
    if (!violations().empty()) std::abort();
  }
};

absl::StatusOr<std::string> Id(int index) { return absl::StrCat("fake-", index); }

absl::StatusOr<std::unique_ptr<ComputeDevice>> Open(int index) {
  FakeDevice::Options options = {.index = index, .for_tensors_of_the_cpu = true};
  if (const char* const bytes = std::getenv("PARLEY_FAKE_DEVICE_BYTES")) {
    options.memory_bytes = std::strtoull(bytes, nullptr, 10);
  }
  options.reaches_others = std::getenv("PARLEY_FAKE_DEVICE_IS_ALONE") == nullptr;
  return std::make_unique<StrictDevice>(options);
}

absl::StatusOr<std::string> MakeGroupId() { return FakeGroup::MakeId(); }

absl::StatusOr<std::unique_ptr<DeviceGroup>> JoinGroup(ComputeDevice& device,
                                                       const DeviceGroup::Options& options,
                                                       absl::Time deadline) {
  auto joined = FakeGroup::Join(static_cast<FakeDevice&>(device), options, deadline);
  if (!joined.ok()) return joined.status();
  return *std::move(joined);
}

}  // namespace
}  // namespace parley

extern "C" const parley::DevicePlugin* ParleyDevicePlugin() {
  static constexpr parley::DevicePlugin kPlugin = {
      FAKE_VERSION, __VERSION__,   &parley::TakeSteadyEpoch, &parley::Count,
      &parley::Id,  &parley::Open, &parley::MakeGroupId,     &parley::JoinGroup};
  return &kPlugin;
}
