#include "common/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace parley {
namespace {

TEST(Utf8Test, CharactersOfAllLengthsAreValid) {
  EXPECT_EQ(FirstInvalidUtf8(""), std::nullopt);
  EXPECT_EQ(FirstInvalidUtf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf"),
            std::nullopt);
  EXPECT_EQ(FirstInvalidUtf8(absl::string_view("\0", 1)), std::nullopt);
}

TEST(Utf8Test, WhatIsNoCharacterIsFoundWithItsPlace) {
  for (const std::string wrong : {"\x80", "\xc3", "\xc3z", "\xe2\x82", "\xe2\x82z", "\xf0\x9f\x98",
                                  "\xff", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                                  "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_EQ(FirstInvalidUtf8("a\xc3\xa9" + wrong), 3) << testing::PrintToString(wrong);
  }
}

TEST(ValidUtf8Test, WhatIsValidStaysAsItIs) {
  EXPECT_EQ(ValidUtf8("", 10), "");
  EXPECT_EQ(ValidUtf8("", 0), "");
  EXPECT_EQ(ValidUtf8("caf\xc3\xa9", 10), "caf\xc3\xa9");
  EXPECT_EQ(ValidUtf8("caf\xc3\xa9", 5), "caf\xc3\xa9");
}

TEST(ValidUtf8Test, EachByteThatIsNoneIsReplaced) {
  EXPECT_EQ(ValidUtf8("caf\xe9.jpg", 100), "caf\xef\xbf\xbd.jpg");
  EXPECT_EQ(ValidUtf8("\xe9", 100), "\xef\xbf\xbd");
  EXPECT_EQ(ValidUtf8("a\xe2\x82", 100), "a\xef\xbf\xbd\xef\xbf\xbd") << "it ends too early";
}

TEST(ValidUtf8Test, IsCutWhereACharacterBegins) {
  EXPECT_EQ(ValidUtf8("abc", 2), "ab");
  EXPECT_EQ(ValidUtf8("abc", 0), "");
  EXPECT_EQ(ValidUtf8("caf\xc3\xa9", 4), "caf");
  EXPECT_EQ(ValidUtf8("\xf0\x9f\x98\x80", 3), "");
  EXPECT_EQ(ValidUtf8("ab\xe9", 4), "ab") << "what replaces a byte is a character too";
}

TEST(ValidUtf8Test, WhateverComesIsValidThenAndNoLongerThanItMayBe) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text.push_back(static_cast<char>((i * 7919) >> 3));
  for (const size_t most : {0, 1, 2, 3, 500, 19999, 1 << 20}) {
    const std::string valid = ValidUtf8(text, most);
    EXPECT_LE(valid.size(), most);
    EXPECT_EQ(FirstInvalidUtf8(valid), std::nullopt) << most;
  }
}

}  // namespace
}  // namespace parley
