#include "common/clock/steady_now.h"

#include <chrono>

namespace parley {
namespace {

absl::Duration SinceBoot() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

absl::Time SteadyNow() {
  static const absl::Time boot = absl::FromChrono(std::chrono::system_clock::now()) - SinceBoot();
  return boot + SinceBoot();
}

}  // namespace parley
