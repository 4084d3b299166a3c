#include "worker/data/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace parley
