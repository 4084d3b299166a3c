#include "common/tensor_slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace parley {
namespace {

std::string BytesOf(const TensorBytes& bytes) {
  std::string copy(bytes.size(), '\0');
  bytes.CopyTo(reinterpret_cast<std::byte*>(copy.data()));
  return copy;
}

TEST(TensorBytesTest, APartIsTheSameBytesHoweverTheyLie) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text(1 + random() % 50, ' ');
    for (char& c : text) c = static_cast<char>(random());
    TensorBytes bytes;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min<size_t>(text.size() - at, 1 + random() % 9);
      bytes.Append({reinterpret_cast<const std::byte*>(text.data()) + at, size});
      at += size;
    }
    const size_t begin = random() % (text.size() + 1);
    const size_t size = random() % (text.size() - begin + 1);
    ASSERT_EQ(BytesOf(bytes.Part(begin, size)), text.substr(begin, size));
  }
}

}  // namespace
}  // namespace parley
