#ifndef PARLEY_COMMON_PULL_TURN_H_
#define PARLEY_COMMON_PULL_TURN_H_

#include <cstddef>

namespace parley {

// In which turn values come to a worker that goes on while they come (Session::PullAhead): shards
// make those of a step in this order, and workers ask for them in it.
enum class PullTurn {
  kBuffers,  // awaited before all else
  kTiny,     // normalisations, biases: all layers have some, and all together are next to nothing
  kOthers,   // in the order of their ids, which is that of a forward
};
inline constexpr PullTurn kPullTurns[] = {PullTurn::kBuffers, PullTurn::kTiny, PullTurn::kOthers};

inline constexpr size_t kMostTinyBytes = 16 << 10;

// Of a slice.
inline PullTurn TurnOf(bool buffer, size_t bytes) {
  if (buffer) return PullTurn::kBuffers;
  return bytes <= kMostTinyBytes ? PullTurn::kTiny : PullTurn::kOthers;
}

}  // namespace parley

#endif  // PARLEY_COMMON_PULL_TURN_H_
