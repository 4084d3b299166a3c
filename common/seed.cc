#include "common/seed.h"

#include <sys/random.h>

namespace parley {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): each input bit changes half of the output
// bits.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t DeriveSeed(uint64_t seed, std::string_view purpose,
                    std::initializer_list<uint64_t> numbers) {
  uint64_t state = Mix(seed);
  for (const char c : purpose) state = Mix(state ^ static_cast<unsigned char>(c));
  state = Mix(state ^ purpose.size());
  for (const uint64_t number : numbers) state = Mix(state ^ number);
  return state;
}

uint64_t RandomIncarnation() {
  uint64_t value = 0;
  // So few bytes come whole (getrandom(2)); it fails where a signal comes before there are any.
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value) || value == 0) {
  }
  return value;
}

}  // namespace parley
