#include "worker/device/plugin_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace parley {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(const std::string& file) {
  const auto plugin = LoadDevicePlugin("worker/device/" + file);
  EXPECT_EQ(plugin.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(plugin.status().message());
}

TEST(LoadDevicePlugin, APluginOfThisBuildGivesDevices) {
  const auto plugin = LoadDevicePlugin("worker/device/libfake_plugin.so");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_EQ(*(*plugin)->count(), 2);
  const auto device = (*plugin)->open(1);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE((*device)->Allocate("test", 16).ok());
}

TEST(LoadDevicePlugin, OneThatIsNotThereIsNamedInOneLine) {
  EXPECT_THAT(Message("libnone.so"), AllOf(HasSubstr("worker/device/libnone.so is missing"),
                                           HasSubstr("deploy/build --cuda"), Not(HasSubstr("\n"))));
}

TEST(LoadDevicePlugin, ALibraryThatItLacksIsNamed) {
  EXPECT_THAT(Message("libplugin_without_library.so"),
              AllOf(HasSubstr("libnot_there.so.7"), HasSubstr("deploy/bootstrap cuda"),
                    Not(HasSubstr("\n"))));
}

TEST(LoadDevicePlugin, OneOfAnotherBuildIsRefused) {
  EXPECT_THAT(Message("libold_plugin.so"), HasSubstr("another build"));
}

TEST(LoadDevicePlugin, ASharedObjectThatIsNoneIsRefused) {
  EXPECT_THAT(Message("libfake_driver.so"), HasSubstr("is no plugin"));
}

}  // namespace
}  // namespace parley
