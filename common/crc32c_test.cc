#include "common/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace parley {
namespace {

// The values of RFC 3720, B.4, and of every table of CRCs.
TEST(Crc32c, HasTheKnownValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(Crc32c(""), 0U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  std::string falling;
  for (int i = 0; i < 32; ++i) {
    rising.push_back(static_cast<char>(i));
    falling.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(Crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(Crc32c(falling), 0x113fdb5cU);
}

}  // namespace
}  // namespace parley
