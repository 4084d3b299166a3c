#ifndef PARLEY_COMMON_NONZERO_BLOCKS_H_
#define PARLEY_COMMON_NONZERO_BLOCKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace parley {

// Which of the blocks of a range of elements hold anything but zeros: most of an embedding's
// gradient is the rows of words that no sample has. A bit for each block, as SliceData.nonzero
// (proto/types.proto) says. Zero is +0, all bits of it: what is left out is put back bit by bit.
// (ps-lite sends keys with its values instead; here the reader needs no table of them.)
inline constexpr uint64_t kZeroBlock = 1024;  // elements: about a row

// Whether all bits of it are 0.
bool AllZero(absl::Span<const std::byte> bytes);

// Of elements of so many bytes each. Empty where less than a quarter of the blocks are zeros, or
// there are only a few: then it is not worth while.
std::string FindNonzero(absl::Span<const std::byte> values, size_t element_bytes);

inline bool IsNonzero(std::string_view nonzero, uint64_t block) {
  return ((static_cast<uint8_t>(nonzero[block / 8]) >> (block % 8)) & 1) != 0;
}

// How many of so many elements lie in blocks that hold anything. nullopt where `nonzero` is not of
// so many elements.
std::optional<uint64_t> NonzeroElements(std::string_view nonzero, uint64_t elements);

// Whether a quarter of so many elements, or more, lie in blocks of zeros; `nonzero` is of so many.
bool AreWorthLeavingOut(std::string_view nonzero, uint64_t elements);

// Whether all of the elements begin .. end lie in blocks of zeros, or none does; `nonzero` is of
// `end` or more.
bool AreZero(std::string_view nonzero, uint64_t begin, uint64_t end);
bool HoldAll(std::string_view nonzero, uint64_t begin, uint64_t end);

// Calls run(begin, end, holds) for the elements first .. last, as many blocks that are alike at a
// time as there are; `nonzero` is of `last` or more.
template <class Run>
void ForRuns(std::string_view nonzero, uint64_t first, uint64_t last, Run run) {
  for (uint64_t begin = first; begin < last;) {
    const bool holds = IsNonzero(nonzero, begin / kZeroBlock);
    uint64_t end = begin - begin % kZeroBlock + kZeroBlock;
    while (end < last && IsNonzero(nonzero, end / kZeroBlock) == holds) end += kZeroBlock;
    end = std::min(end, last);
    run(begin, end, holds);
    begin = end;
  }
}

// Sets `out` to the bytes of the blocks that hold anything.
void PackNonzero(absl::Span<const std::byte> values, size_t element_bytes, std::string_view nonzero,
                 std::string* out);

}  // namespace parley

#endif  // PARLEY_COMMON_NONZERO_BLOCKS_H_
