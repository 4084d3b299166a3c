#include "client/coordinator_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace parley {
namespace {

class CoordinatorAddressTest : public testing::Test {
 protected:
  std::string Write(const std::string& content) {
    const std::string path = testing::TempDir() + "/address";
    EXPECT_TRUE(WriteFileAtomically(*files_, path, content).ok());
    return "file:" + path;
  }
  std::unique_ptr<FileSystem> files_ = PosixFileSystem();
};

TEST_F(CoordinatorAddressTest, TakesHostAndPortAsTheyAre) {
  auto address = ResolveCoordinator(*files_, "127.0.0.1:4000");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "127.0.0.1:4000");
  EXPECT_TRUE(ResolveCoordinator(*files_, "[::1]:4000").ok());
}

TEST_F(CoordinatorAddressTest, RefusesWhatIsNoAddress) {
  for (const char* option :
       {"", "host", ":1", "host:", "host:0", "host:65536", "host:x", "a b:1"}) {
    EXPECT_EQ(ResolveCoordinator(*files_, option).status().code(),
              absl::StatusCode::kInvalidArgument)
        << option;
  }
}

TEST_F(CoordinatorAddressTest, ReadsTheFirstLineOfTheFile) {
  auto address = ResolveCoordinator(*files_, Write("127.0.0.1:4000\n"));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "127.0.0.1:4000");
}

TEST_F(CoordinatorAddressTest, AFileThatIsNotThereYetIsWaitedFor) {
  const absl::Status nothing = ResolveCoordinator(*files_, "file:/nowhere/address").status();
  EXPECT_EQ(nothing.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nothing.message()),
              testing::EndsWith("; the job has not begun, or is over: the last line of "
                                "/nowhere/history.jsonl says how it ended"));
  EXPECT_THAT(std::string(ResolveCoordinator(*files_, "file:address").status().message()),
              testing::HasSubstr("the last line of history.jsonl"));
  EXPECT_EQ(ResolveCoordinator(*files_, Write("\n")).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(ResolveCoordinator(*files_, Write("not an address\n")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace parley
