#include "worker/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

namespace parley {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Row = std::vector<int64_t>;

class TextTest : public ::testing::Test {
 protected:
  TextTest() {
    std::string name = "/tmp/text_testXXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~TextTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  Data Settings(Tokens tokens, uint32_t length, uint32_t columns) const {
    Data data;
    Text& text = *data.mutable_text();
    text.set_train(Path("train"));
    text.set_tokens(tokens);
    text.set_length(length);
    text.set_columns(columns);
    return data;
  }

  std::string directory_;
};

Datasets Open(const Data& settings) {
  auto data = OpenDatasets(settings);
  EXPECT_TRUE(data.ok()) << data.status();
  return *std::move(data);
}

std::string Refusal(const Data& settings, absl::StatusCode code) {
  const absl::Status status = OpenDatasets(settings).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

// x and y of all samples.
struct Rows {
  std::vector<Row> x;
  std::vector<Row> y;
};

Rows ReadAll(const DataSource& source) {
  const auto length = static_cast<size_t>(source.x().shape[0]);
  Draw draw;
  draw.samples.resize(source.size());
  std::iota(draw.samples.begin(), draw.samples.end(), 0);
  std::vector<std::byte> x(source.size() * source.x().bytes());
  std::vector<std::byte> y(source.size() * source.y().bytes());
  EXPECT_TRUE(source.Fill(draw, absl::MakeSpan(x), absl::MakeSpan(y)).ok());
  const auto rows = [&](const std::vector<std::byte>& bytes) {
    std::vector<Row> all(source.size(), Row(length));
    for (size_t i = 0; i < all.size(); ++i) {
      std::memcpy(all[i].data(), bytes.data() + i * length * 8, length * 8);
    }
    return all;
  };
  return {rows(x), rows(y)};
}

// As PyTorch's word_language_model does it: batchify makes a matrix with a column for each part of
// the text, get_batch cuts it into pieces of rows.
Rows Expected(const Row& tokens, size_t length, size_t columns) {
  const size_t height = tokens.size() / columns;
  std::vector<Row> matrix(height, Row(columns));
  for (size_t i = 0; i < height * columns; ++i) matrix[i % height][i / height] = tokens[i];
  Rows rows;
  for (size_t begin = 0; begin + 1 < height; begin += length) {
    if (begin + length > height - 1) break;  // PyTorch would make a shorter one
    for (size_t column = 0; column < columns; ++column) {
      Row& x = rows.x.emplace_back();
      Row& y = rows.y.emplace_back();
      for (size_t i = begin; i < begin + length; ++i) {
        x.push_back(matrix[i][column]);
        y.push_back(matrix[i + 1][column]);
      }
    }
  }
  return rows;
}

std::string RandomBytes(size_t count) {
  std::mt19937 random(count);
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

Row Numbers(const std::string& bytes) {
  Row numbers;
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return numbers;
}

TEST_F(TextTest, PiecesAreThoseOfBatchifyAndBptt) {
  for (const size_t count : {size_t{24}, size_t{26}, size_t{90}, size_t{1000}}) {
    const std::string bytes = RandomBytes(count);
    Write("train", bytes);
    for (const uint32_t columns : {1, 3, 4}) {
      for (const uint32_t length : {1, 4, 5}) {
        const Datasets data = Open(Settings(BYTES, length, columns));
        const Rows expected = Expected(Numbers(bytes), length, columns);
        const Rows rows = ReadAll(*data.train);
        ASSERT_GT(rows.x.size(), 0);
        EXPECT_EQ(rows.x, expected.x) << count << " " << columns << " " << length;
        EXPECT_EQ(rows.y, expected.y) << count << " " << columns << " " << length;
        EXPECT_EQ(data.test, nullptr);
      }
    }
  }
}

TEST_F(TextTest, SamplesSayHowManyTokensThereAre) {
  Write("train", "one two one three\n");
  const Datasets bytes = Open(Settings(BYTES, 3, 2));
  EXPECT_EQ(bytes.train->x().dtype, I64);
  EXPECT_EQ(bytes.train->x().shape, Row({3}));
  EXPECT_EQ(bytes.train->x().classes, 256);
  EXPECT_EQ(bytes.train->y().classes, 256);
  // <unk>, one, and <eos>, three, two, each once.
  const Datasets words = Open(Settings(WORDS, 4, 1));
  EXPECT_EQ(words.train->x().classes, 5);
  EXPECT_THAT(ReadAll(*words.train).x, ElementsAre(Row({1, 4, 1, 3})));
  EXPECT_THAT(ReadAll(*words.train).y, ElementsAre(Row({4, 1, 3, 2})));
}

TEST_F(TextTest, WordsOfTheTestFileThatAreNotTrainedOnAreUnknown) {
  Write("train", "a a a b\n");
  Write("test", "a z b b z\n");
  Data settings = Settings(WORDS, 4, 1);
  settings.mutable_text()->set_test(Path("test"));
  const Datasets data = Open(settings);
  EXPECT_EQ(data.test->x().classes, 4);
  EXPECT_THAT(ReadAll(*data.test).x, ElementsAre(Row({1, 0, 3, 3})));
}

TEST_F(TextTest, RareWordsBeyondTheVocabularyAreOneWord) {
  Write("train", "a a a b b c\n");
  Data settings = Settings(WORDS, 6, 1);
  settings.mutable_text()->set_vocabulary(3);
  const Datasets data = Open(settings);
  EXPECT_EQ(data.train->x().classes, 3);
  EXPECT_THAT(ReadAll(*data.train).y, ElementsAre(Row({1, 1, 2, 2, 0, 0})));
}

TEST_F(TextTest, TheLastShareIsTheTestSetAndIsNotTrainedOn) {
  const std::string bytes = RandomBytes(1000);
  Write("train", bytes);
  Data settings = Settings(BYTES, 5, 4);
  settings.mutable_text()->set_test_share(0.25);
  const Datasets data = Open(settings);
  EXPECT_EQ(ReadAll(*data.train).x, Expected(Numbers(bytes.substr(0, 750)), 5, 4).x);
  EXPECT_EQ(ReadAll(*data.test).y, Expected(Numbers(bytes.substr(750)), 5, 4).y);

  Write("train", "a b a b a b z z\n");  // nine words
  settings = Settings(WORDS, 1, 1);
  settings.mutable_text()->set_test_share(0.34);
  const Datasets words = Open(settings);
  EXPECT_EQ(words.train->x().classes, 3) << "<unk>, a, b";
  EXPECT_THAT(ReadAll(*words.test).x, ElementsAre(Row({0}), Row({0})));
}

// Lines of wiki.train.tokens; counted by a map.
TEST_F(TextTest, WikiTextsFilesAreReadAsWords) {
  const std::string text =
      " \n = Robert Boulter = \n \n Robert Boulter is an English film , television and theatre "
      "actor . He had a guest @-@ starring role on the television series The Bill in 2000 . This "
      "was followed by a starring role in the play <unk> written by Simon Stephens . \n";
  Write("train", text);
  std::map<std::string, int> counts;
  size_t tokens = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    for (std::string word; words >> word; ++tokens) ++counts[word];
    ++counts["<eos>"];
    ++tokens;
  }
  const Datasets data = Open(Settings(WORDS, 1, 1));
  EXPECT_EQ(data.train->x().classes, static_cast<int64_t>(counts.size()));
  EXPECT_EQ(data.train->size(), tokens - 1);
  EXPECT_EQ(ReadAll(*data.train).x[0], ReadAll(*data.train).x[5]) << "lines of nothing but <eos>";
}

TEST_F(TextTest, AMissingFileIsNamedWithWhatIsNeeded) {
  Data settings = Settings(BYTES, 5, 1);
  EXPECT_THAT(Refusal(settings, absl::StatusCode::kNotFound),
              AllOf(HasSubstr(Path("train")), HasSubstr("data.text.train needs a text file")));
  Write("train", RandomBytes(100));
  settings.mutable_text()->set_test(Path("none"));
  EXPECT_THAT(Refusal(settings, absl::StatusCode::kNotFound),
              AllOf(HasSubstr(Path("none")), HasSubstr("data.text.test")));
}

TEST_F(TextTest, ATextTooShortForAPieceOfEachColumnIsRefused) {
  Write("train", RandomBytes(23));
  EXPECT_THAT(Refusal(Settings(BYTES, 5, 4), absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr(Path("train") + " has 23 tokens, 5 for each of 4 columns"),
                    HasSubstr("make data.text.columns or data.text.length smaller")));
  Write("train", RandomBytes(24));
  Data settings = Settings(BYTES, 5, 4);
  Open(settings);
  Write("test", "");
  settings.mutable_text()->set_test(Path("test"));
  EXPECT_THAT(Refusal(settings, absl::StatusCode::kInvalidArgument),
              HasSubstr(Path("test") + " has 0 tokens"));
  settings.mutable_text()->clear_test();
  settings.mutable_text()->set_test_share(0.5);
  EXPECT_THAT(Refusal(settings, absl::StatusCode::kInvalidArgument),
              HasSubstr(Path("train") + " without its last test_share has 12 tokens"));
}

TEST_F(TextTest, WordsThatAreNotUtf8AreRefusedWithTheirLine) {
  Write("train", "one\ntwo caf\xe9\nthree four five\n");
  EXPECT_THAT(Refusal(Settings(WORDS, 2, 1), absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr(Path("train") + " is not UTF-8 in line 2 (byte 11"),
                    HasSubstr("tokens: BYTES")));
  Open(Settings(BYTES, 2, 1));
}

}  // namespace
}  // namespace parley
