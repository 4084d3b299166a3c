#include "common/nonzero_blocks.h"

#include <cstring>
#include <iterator>

namespace parley {
namespace {

// Fewer blocks than these travel as they are.
constexpr uint64_t kFewBlocks = 4;

uint64_t Blocks(uint64_t elements) { return (elements + kZeroBlock - 1) / kZeroBlock; }

}  // namespace

bool AllZero(absl::Span<const std::byte> bytes) {
  static constexpr std::byte kZeros[4096] = {};
  for (; !bytes.empty(); bytes.remove_prefix(std::min(std::size(kZeros), bytes.size()))) {
    const size_t count = std::min(std::size(kZeros), bytes.size());
    if (std::memcmp(bytes.data(), kZeros, count) != 0) return false;
  }
  return true;
}

std::string FindNonzero(absl::Span<const std::byte> values, size_t element_bytes) {
  const size_t block_bytes = kZeroBlock * element_bytes;
  const uint64_t blocks = Blocks(values.size() / element_bytes);
  std::string nonzero;
  if (blocks < kFewBlocks) return nonzero;
  uint64_t most = blocks - (blocks + 3) / 4;  // that hold something
  nonzero.resize((blocks + 7) / 8, '\0');
  for (uint64_t block = 0; block < blocks; ++block) {
    if (AllZero(values.subspan(block * block_bytes, block_bytes))) continue;
    if (most-- == 0) return {};
    nonzero[block / 8] = static_cast<char>(nonzero[block / 8] | (1 << (block % 8)));
  }
  return nonzero;
}

std::optional<uint64_t> NonzeroElements(std::string_view nonzero, uint64_t elements) {
  const uint64_t blocks = Blocks(elements);
  if (nonzero.size() != (blocks + 7) / 8) return std::nullopt;
  for (uint64_t block = blocks; block < nonzero.size() * 8; ++block) {
    if (IsNonzero(nonzero, block)) return std::nullopt;
  }
  uint64_t count = 0;
  ForRuns(nonzero, 0, elements, [&](uint64_t begin, uint64_t end, bool holds) {
    if (holds) count += end - begin;
  });
  return count;
}

bool AreWorthLeavingOut(std::string_view nonzero, uint64_t elements) {
  return NonzeroElements(nonzero, elements).value_or(elements) <= elements - (elements + 3) / 4;
}

bool AreZero(std::string_view nonzero, uint64_t begin, uint64_t end) {
  for (uint64_t block = begin / kZeroBlock; block < Blocks(end); ++block) {
    if (IsNonzero(nonzero, block)) return false;
  }
  return true;
}

bool HoldAll(std::string_view nonzero, uint64_t begin, uint64_t end) {
  for (uint64_t block = begin / kZeroBlock; block < Blocks(end); ++block) {
    if (!IsNonzero(nonzero, block)) return false;
  }
  return true;
}

void PackNonzero(absl::Span<const std::byte> values, size_t element_bytes, std::string_view nonzero,
                 std::string* out) {
  out->clear();
  ForRuns(nonzero, 0, values.size() / element_bytes, [&](uint64_t begin, uint64_t end, bool holds) {
    if (!holds) return;
    out->append(reinterpret_cast<const char*>(values.data()) + begin * element_bytes,
                (end - begin) * element_bytes);
  });
}

}  // namespace parley
