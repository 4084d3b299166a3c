// The contract of devices, over the machine's first GPU.
#include <gtest/gtest.h>

#include "worker/device/plugin_loader.h"
#include "worker/device/testing/device_contract.h"

namespace parley {

absl::StatusOr<std::unique_ptr<ComputeDevice>> MakeDeviceUnderTest() {
  const auto plugin = LoadDevicePlugin("worker/cuda/libparley_cuda.so");
  if (!plugin.ok()) return plugin.status();
  return (*plugin)->open(0);
}

namespace {

TEST(CudaDevice, OneThatIsNotThereIsNotFound) {
  const auto plugin = LoadDevicePlugin("worker/cuda/libparley_cuda.so");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  const auto count = (*plugin)->count();
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ((*plugin)->open(*count).status().code(), absl::StatusCode::kNotFound);
}

TEST(CudaDevice, TheDriverAndCudaFindTheSameGpus) {
  const auto by_driver = CountGpus();
  ASSERT_TRUE(by_driver.ok()) << by_driver.status();
  EXPECT_EQ(*by_driver, *(*LoadDevicePlugin("worker/cuda/libparley_cuda.so"))->count());
}

}  // namespace
}  // namespace parley
