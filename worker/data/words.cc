#include "worker/data/words.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace parley {
namespace {

constexpr absl::string_view kUnknown = "<unk>";
constexpr absl::string_view kEndOfLine = "<eos>";

}  // namespace

std::vector<absl::string_view> Words(absl::string_view text) {
  std::vector<absl::string_view> words;
  size_t begin = 0;  // of the word under way
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool ends = i == text.size();
    if (!ends && !absl::ascii_isspace(static_cast<unsigned char>(text[i]))) continue;
    if (i > begin) words.push_back(text.substr(begin, i - begin));
    begin = i + 1;
    const bool line_ends = ends ? !text.empty() && text.back() != '\n' : text[i] == '\n';
    if (line_ends) words.push_back(kEndOfLine);
  }
  return words;
}

Vocabulary::Vocabulary(absl::Span<const absl::string_view> words, uint64_t limit) {
  absl::flat_hash_map<absl::string_view, uint64_t> counts;
  for (const absl::string_view word : words) ++counts[word];
  counts.erase(kUnknown);
  std::vector<std::pair<absl::string_view, uint64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  numbers_.emplace(kUnknown, 0);
  for (const auto& [word, count] : sorted) {
    if (limit != 0 && numbers_.size() >= limit) break;
    numbers_.emplace(word, static_cast<uint32_t>(numbers_.size()));
  }
}

uint32_t Vocabulary::NumberOf(absl::string_view word) const {
  const auto found = numbers_.find(word);
  return found == numbers_.end() ? 0 : found->second;
}

}  // namespace parley
