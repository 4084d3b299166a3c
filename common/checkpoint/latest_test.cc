#include "common/checkpoint/latest.h"

#include <gtest/gtest.h>

#include <string>

namespace parley {
namespace {

TEST(Latest, AnyChangedByteOrTruncationIsAnErrorOrTheSameName) {
  const std::string content = FormatLatest("step-00000100");
  ASSERT_EQ(*ParseLatest(content), "step-00000100");
  for (size_t at = 0; at < content.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(byte);
      const auto name = ParseLatest(damaged);
      if (name.ok()) {
        // Where the two lines have become one, that is the name of nothing.
        ASSERT_TRUE(*name == "step-00000100" || name->find("crc32 ") != std::string::npos)
            << at << ": " << byte;
        continue;
      }
      ASSERT_TRUE(absl::IsDataLoss(name.status()) || absl::IsInvalidArgument(name.status()));
    }
  }
  for (size_t size = 0; size < content.size(); ++size) {
    const auto name = ParseLatest(content.substr(0, size));
    EXPECT_TRUE(!name.ok() || *name == "step-00000100") << size;
  }
}

TEST(Latest, OneLineByHandWillDo) {
  EXPECT_EQ(*ParseLatest("step-00000100\n"), "step-00000100");
  EXPECT_EQ(*ParseLatest(" best of all \r\n\n"), "best of all");
  EXPECT_EQ(ParseLatest("step-00000100").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseLatest("").status().code(), absl::StatusCode::kDataLoss);
  for (const char* name : {"\n", "..\n", ".\n", "a/b\n", "/\n"}) {
    EXPECT_EQ(ParseLatest(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(ParseLatest("step-00000100\nstep-00000200\n").status().code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace parley
