#include "common/job/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace parley {
namespace {

// `done`: steps before this one.
double Schedule(const LearningRate& rate, uint64_t done, uint64_t total_steps) {
  if (rate.has_step_decay() && rate.step_decay().every_steps() > 0) {
    const uint64_t decays = done / rate.step_decay().every_steps();
    return std::pow(rate.step_decay().gamma(), static_cast<double>(decays));
  }
  if (rate.has_cosine()) {
    const uint64_t over = rate.cosine().over_steps() > 0 ? rate.cosine().over_steps() : total_steps;
    if (over == 0) return 1;
    const double minimum = rate.cosine().minimum();
    if (done >= over) return minimum;
    const double turn = std::numbers::pi * static_cast<double>(done) / static_cast<double>(over);
    return minimum + (1 - minimum) * (1 + std::cos(turn)) / 2;
  }
  return 1;
}

}  // namespace

double LearningRateFactor(const JobConfig& job, uint64_t step, uint64_t total_steps) {
  const LearningRate& rate = job.learning_rate();
  double factor = Schedule(rate, step > 0 ? step - 1 : 0, total_steps);
  if (step < rate.warmup_steps()) {
    factor *= static_cast<double>(step) / static_cast<double>(rate.warmup_steps());
  }
  if (rate.linear_scaling()) factor *= std::max(job.cluster().workers(), uint32_t{1});
  return factor;
}

}  // namespace parley
