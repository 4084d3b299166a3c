#include "worker/data/text.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/utf8.h"
#include "worker/data/words.h"

namespace parley {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{1} << 32;
constexpr int64_t kByteValues = 256;

using Numbers = std::vector<uint32_t>;

class TextSource final : public DataSource {
 public:
  TextSource(Numbers tokens, uint64_t columns, uint64_t length, int64_t classes)
      : tokens_(std::move(tokens)),
        columns_(columns),
        column_(tokens_.size() / columns),
        layout_{I64, {static_cast<int64_t>(length)}, classes},
        size_(column_ == 0 ? 0 : (column_ - 1) / length * columns) {}

  uint64_t size() const override { return size_; }
  const SampleLayout& x() const override { return layout_; }
  const SampleLayout& y() const override { return layout_; }
  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override {
    return FillFrom(0, draw, x);
  }
  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override {
    return FillFrom(1, draw, y);
  }

 private:
  // shift: by so many tokens later.
  absl::Status FillFrom(uint64_t shift, const Draw& draw, absl::Span<std::byte> to) const {
    if (absl::Status status = CheckFill(draw, size_, layout_, to); !status.ok()) return status;
    const auto length = static_cast<uint64_t>(layout_.shape[0]);
    std::byte* out = to.data();
    for (const uint64_t sample : draw.samples) {
      const uint64_t begin = sample % columns_ * column_ + sample / columns_ * length + shift;
      for (uint64_t i = begin; i < begin + length; ++i, out += sizeof(int64_t)) {
        const int64_t token = tokens_[i];
        std::memcpy(out, &token, sizeof token);
      }
    }
    return absl::OkStatus();
  }

  const Numbers tokens_;
  const uint64_t columns_;
  const uint64_t column_;  // tokens of one
  const SampleLayout layout_;
  const uint64_t size_;
};

// field: of the job file.
absl::StatusOr<std::string> ReadText(const std::string& path, const std::string& field,
                                     const Text& settings, FileSystem& files) {
  absl::StatusOr<std::string> text = ReadWholeFile(files, path, kMostFileBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat("data missing: ", text.status().message(), "; ", field,
                                            " needs a text file, such as WikiText-2's "
                                            "wiki.train.tokens; deploy/texts writes those of the "
                                            "shipped jobs"));
  }
  if (!text.ok() || settings.tokens() != WORDS) return text;
  if (const auto invalid = FirstInvalidUtf8(*text)) {
    const auto line =
        std::count(text->begin(), text->begin() + static_cast<ptrdiff_t>(*invalid), '\n') + 1;
    return absl::InvalidArgumentError(absl::StrCat(
        field, ": ", path, " is not UTF-8 in line ", line, " (byte ", *invalid,
        " of the file); convert it (iconv -f ISO-8859-1 -t UTF-8), or predict its bytes (tokens: "
        "BYTES)"));
  }
  return text;
}

// what: the text, for a message.
absl::StatusOr<std::shared_ptr<const DataSource>> MakeSource(Numbers tokens, int64_t classes,
                                                             const Text& settings,
                                                             const std::string& what) {
  const uint64_t count = tokens.size();
  auto source = std::make_shared<const TextSource>(std::move(tokens), settings.columns(),
                                                   settings.length(), classes);
  if (source->size() > 0) return source;
  return absl::InvalidArgumentError(absl::StrCat(
      what, " has ", count, " tokens, ", count / settings.columns(), " for each of ",
      settings.columns(), " columns, which is too short for a piece of ", settings.length(),
      " and the token after it; give more text, or make data.text.columns or data.text.length "
      "smaller"));
}

// Both sets as elements: bytes or words.
template <class Element>
struct Elements {
  absl::Span<const Element> train;
  absl::Span<const Element> test;
};

// The last test_share of `train` is the test set where there is no other one.
template <class Element>
Elements<Element> Divide(absl::Span<const Element> train, absl::Span<const Element> test,
                         const Text& settings) {
  if (!settings.test().empty()) return {train, test};
  const auto kept =
      train.size() - static_cast<size_t>(static_cast<double>(train.size()) * settings.test_share());
  return {train.first(kept), train.subspan(kept)};
}

template <class Element, class NumberOf>
Numbers Number(absl::Span<const Element> elements, const NumberOf& number_of) {
  Numbers tokens;
  tokens.reserve(elements.size());
  for (const Element& element : elements) tokens.push_back(number_of(element));
  return tokens;
}

struct Numbered {
  Numbers train;
  Numbers test;
  int64_t classes;
};

Numbered NumberBytes(const std::string& train, const std::string& test, const Text& settings) {
  const auto parts = Divide<char>(train, test, settings);
  const auto number = [](char byte) { return uint32_t{static_cast<unsigned char>(byte)}; };
  return {Number(parts.train, number), Number(parts.test, number), kByteValues};
}

Numbered NumberWords(const std::string& train, const std::string& test, const Text& settings) {
  const std::vector<absl::string_view> train_words = Words(train);
  const std::vector<absl::string_view> test_words = Words(test);
  const auto parts = Divide<absl::string_view>(train_words, test_words, settings);
  const Vocabulary vocabulary(parts.train, settings.vocabulary());
  const auto number = [&](absl::string_view word) { return vocabulary.NumberOf(word); };
  return {Number(parts.train, number), Number(parts.test, number),
          static_cast<int64_t>(vocabulary.size())};
}

}  // namespace

absl::StatusOr<Datasets> OpenText(const Text& settings, FileSystem& files) {
  const auto train = ReadText(settings.train(), "data.text.train", settings, files);
  if (!train.ok()) return train.status();
  std::string test;
  const bool has_test_file = !settings.test().empty();
  if (has_test_file) {
    auto read = ReadText(settings.test(), "data.text.test", settings, files);
    if (!read.ok()) return read.status();
    test = *std::move(read);
  }
  Numbered numbered = settings.tokens() == WORDS ? NumberWords(*train, test, settings)
                                                 : NumberBytes(*train, test, settings);
  const bool has_test = has_test_file || settings.test_share() > 0;
  Datasets datasets;
  const std::string of_train = absl::StrCat("data.text.train: ", settings.train());
  auto training =
      MakeSource(std::move(numbered.train), numbered.classes, settings,
                 has_test && !has_test_file ? absl::StrCat(of_train, " without its last test_share")
                                            : of_train);
  if (!training.ok()) return training.status();
  datasets.train = *std::move(training);
  if (!has_test) return datasets;
  auto testing = MakeSource(std::move(numbered.test), numbered.classes, settings,
                            has_test_file ? absl::StrCat("data.text.test: ", settings.test())
                                          : absl::StrCat(of_train, ": its last test_share"));
  if (!testing.ok()) return testing.status();
  datasets.test = *std::move(testing);
  return datasets;
}

}  // namespace parley
