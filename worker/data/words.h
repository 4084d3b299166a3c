#ifndef PARLEY_WORKER_DATA_WORDS_H_
#define PARLEY_WORKER_DATA_WORDS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace parley {

// What a word is in a text, and its number, for data.text.

// What ASCII white space separates, in order, with "<eos>" at the end of each line, of an empty one
// and of a last one without a line end too. They point into `text`.
std::vector<absl::string_view> Words(absl::string_view text);

// The words that a model knows by number, from 0: "<unk>", then the others, the most frequent ones
// first. They point into what it was made of.
class Vocabulary {
 public:
  // limit: so many words at most, "<unk>" too; 0: all. Words that are as frequent as each other go
  // by their bytes.
  Vocabulary(absl::Span<const absl::string_view> words, uint64_t limit);

  uint64_t size() const { return numbers_.size(); }
  // Of "<unk>" for an unknown one.
  uint32_t NumberOf(absl::string_view word) const;

 private:
  absl::flat_hash_map<absl::string_view, uint32_t> numbers_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_WORDS_H_
