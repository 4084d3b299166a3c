#include "worker/device/plugin_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/clock/steady_now.h"

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

TEST(LoadDevicePlugin, ItsDeadlinesAreByTheProgramsClock) {
  // As if the clock had been set back since the program began.
  TakeSteadyEpoch(SteadyEpoch() + absl::Hours(1));
  const auto plugin = LoadDevicePlugin("worker/device/libfake_plugin.so");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  const auto device = (*plugin)->open(0);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto id = (*plugin)->make_group_id();
  ASSERT_TRUE(id.ok()) << id.status();
  // The other rank does not come: this would take an hour.
  const absl::Time begin = SteadyNow();
  const auto group = (*plugin)->join_group(**device, {.id = *id, .rank = 0, .ranks = 2},
                                           begin + absl::Milliseconds(200));
  EXPECT_FALSE(group.ok());
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(30));
  TakeSteadyEpoch(SteadyEpoch() - absl::Hours(1));
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
