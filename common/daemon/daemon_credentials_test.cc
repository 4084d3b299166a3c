#include "common/daemon/daemon_credentials.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

class DaemonCredentialsTest : public testing::Test {
 protected:
  DaemonCredentialsTest() {
    flags_.coordinator = absl::StrCat("file:", folder_, "/coordinator.address");
  }
  ~DaemonCredentialsTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<SharedCredentials> Take(Tls::Mode mode) const {
    return DaemonCredentials(mode, flags_);
  }
  // Of another process of the job.
  absl::StatusOr<SharedCredentials> CoordinatorsTake(Tls::Mode mode) const {
    DaemonFlags flags;
    flags.listen = flags_.listen;
    flags.credentials = folder_ + "/credentials";
    return DaemonCredentials(mode, flags);
  }

  const std::string folder_ =
      absl::StrCat(testing::TempDir(), "/",
                   testing::UnitTest::GetInstance()->current_test_info()->name(), "/job");
  DaemonFlags flags_;
};

TEST_F(DaemonCredentialsTest, OnOneMachineAJobIsOpen) {
  const auto taken = Take(Tls::AUTO);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, nullptr);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(DaemonCredentialsTest, BeyondItAllHaveTheSameWhoeverComesFirst) {
  flags_.listen = "10.1.2.3:0";
  const auto member = Take(Tls::AUTO);
  const auto coordinator = CoordinatorsTake(Tls::AUTO);
  ASSERT_TRUE(member.ok()) << member.status();
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  ASSERT_NE(*member, nullptr);
  EXPECT_TRUE((*member)->tls());
  EXPECT_EQ((*member)->key, (*coordinator)->key);
}

TEST_F(DaemonCredentialsTest, AnAddressThatOthersAreToldCountsToo) {
  flags_.advertise = "gateway:700";
  const auto member = Take(Tls::AUTO);
  ASSERT_TRUE(member.ok()) << member.status();
  EXPECT_NE(*member, nullptr);
}

TEST_F(DaemonCredentialsTest, WhatIsThereIsUsedOnOneMachineToo) {
  ASSERT_TRUE(CoordinatorsTake(Tls::ON).ok());
  const auto member = Take(Tls::AUTO);
  ASSERT_TRUE(member.ok()) << member.status();
  EXPECT_NE(*member, nullptr);
}

TEST_F(DaemonCredentialsTest, WithoutTlsThereIsAToken) {
  flags_.listen = "10.1.2.3:0";
  const auto member = Take(Tls::OFF);
  ASSERT_TRUE(member.ok()) << member.status();
  ASSERT_NE(*member, nullptr);
  EXPECT_FALSE((*member)->tls());
  EXPECT_FALSE((*member)->token.empty());
}

TEST_F(DaemonCredentialsTest, TheOtherKindIsRefusedAndNamed) {
  ASSERT_TRUE(CoordinatorsTake(Tls::ON).ok());
  const auto refused = Take(Tls::OFF);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_NE(refused.status().message().find(folder_ + "/credentials"), std::string::npos);
}

TEST_F(DaemonCredentialsTest, ForAnAddressBeyondThisMachineTheFileHasToBeNamed) {
  flags_.coordinator = "10.1.2.3:4000";
  const auto refused = Take(Tls::AUTO);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_NE(refused.status().message().find("--credentials="), std::string::npos);
  ASSERT_TRUE(CoordinatorsTake(Tls::ON).ok());
  flags_.credentials = folder_ + "/credentials";
  const auto taken = Take(Tls::AUTO);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_NE(*taken, nullptr);
}

TEST_F(DaemonCredentialsTest, WhereTheCoordinatorIsNamedByAnAddressOfThisMachineTheJobIsOpen) {
  flags_.coordinator = "127.0.0.1:4000";
  const auto taken = Take(Tls::AUTO);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(*taken, nullptr);
}

}  // namespace
}  // namespace parley
