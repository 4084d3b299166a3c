#include "worker/late_steps.h"

#include <utility>

namespace parley {
namespace {

// Between two lines.
constexpr absl::Duration kPause = absl::Seconds(10);

}  // namespace

uint64_t LateSteps::OneMore(absl::Time now) {
  ++untold_;
  if (now < told_ + kPause) return 0;
  told_ = now;
  return std::exchange(untold_, 0);
}

}  // namespace parley
