#include "common/crc32.h"

#include <gtest/gtest.h>

#include <string>

namespace parley {
namespace {

TEST(Crc32, IsZlibsAndContinuesOverPieces) {
  EXPECT_EQ(Crc32(0, std::string_view("123456789")), 0xcbf43926U) << "the value of every CRC-32";
  const std::string text = "parameters, optimizer state and data position";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view first = std::string_view(text).substr(0, cut);
    const std::string_view second = std::string_view(text).substr(cut);
    EXPECT_EQ(Crc32(Crc32(0, first), second), Crc32(0, std::string_view(text)));
    EXPECT_EQ(CombineCrc32(Crc32(0, first), Crc32(0, second), second.size()),
              Crc32(0, std::string_view(text)));
  }
  EXPECT_EQ(Crc32(7, std::string_view()), 7U);
}

TEST(Crc32, AsTextAndBack) {
  for (const uint32_t crc : {0U, 1U, 0xcbf43926U, 0xffffffffU}) {
    EXPECT_TRUE(IsCrc32Text(Crc32Text(crc)));
    EXPECT_EQ(ParseCrc32(Crc32Text(crc)), crc);
  }
  for (const char* text : {"", "0123abc", "0123abcde", "0123ABCD", "0123abcg", "0x23abcd"}) {
    EXPECT_FALSE(IsCrc32Text(text)) << text;
  }
}

}  // namespace
}  // namespace parley
