#include "worker/data/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace parley {
namespace {

using ::testing::ElementsAre;

TEST(WordsTest, WhiteSpaceSeparatesThemAndEachLineEndsWithItsMark) {
  EXPECT_THAT(Words(" a  b\tc \nd\r\n"), ElementsAre("a", "b", "c", "<eos>", "d", "<eos>"));
  EXPECT_THAT(Words("a\n\n \nb\n"), ElementsAre("a", "<eos>", "<eos>", "<eos>", "b", "<eos>"));
}

TEST(WordsTest, ALastLineWithoutALineEndIsALineToo) {
  EXPECT_THAT(Words("a\nb"), ElementsAre("a", "<eos>", "b", "<eos>"));
  EXPECT_THAT(Words("a\nb "), ElementsAre("a", "<eos>", "b", "<eos>"));
  EXPECT_THAT(Words(""), ElementsAre());
}

TEST(VocabularyTest, NumbersGoByFrequencyAndThenByBytes) {
  const std::vector<absl::string_view> words = {"b", "c", "a", "c", "<unk>", "<unk>", "<unk>"};
  const Vocabulary vocabulary(words, 0);
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_EQ(vocabulary.NumberOf("<unk>"), 0);
  EXPECT_EQ(vocabulary.NumberOf("c"), 1);
  EXPECT_EQ(vocabulary.NumberOf("a"), 2);
  EXPECT_EQ(vocabulary.NumberOf("b"), 3);
  EXPECT_EQ(vocabulary.NumberOf("z"), 0);
}

TEST(VocabularyTest, BeyondTheLimitWordsAreUnknown) {
  const std::vector<absl::string_view> words = {"b", "b", "b", "c", "c", "a"};
  const Vocabulary vocabulary(words, 3);
  EXPECT_EQ(vocabulary.size(), 3);
  EXPECT_EQ(vocabulary.NumberOf("b"), 1);
  EXPECT_EQ(vocabulary.NumberOf("c"), 2);
  EXPECT_EQ(vocabulary.NumberOf("a"), 0);
}

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

}  // namespace
}  // namespace parley
