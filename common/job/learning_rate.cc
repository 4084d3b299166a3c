#include "common/job/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace parley {
namespace {

uint64_t StepsDone(const StepPlace& place) { return place.step > 0 ? place.step - 1 : 0; }

double DecayFactor(const StepDecay& decay, const StepPlace& place) {
  double decays = 0;
  if (decay.every_epochs() > 0) {
    decays = std::floor(place.epochs_done / decay.every_epochs());
  } else if (decay.every_steps() > 0) {
    decays = static_cast<double>(StepsDone(place) / decay.every_steps());
  }
  return std::pow(decay.gamma(), decays);
}

double MilestonesFactor(const Milestones& milestones, const StepPlace& place) {
  const auto reached = std::count_if(milestones.steps().begin(), milestones.steps().end(),
                                     [&](uint64_t steps) { return StepsDone(place) >= steps; }) +
                       std::count_if(milestones.epochs().begin(), milestones.epochs().end(),
                                     [&](double epochs) { return place.epochs_done >= epochs; });
  return std::pow(milestones.gamma(), static_cast<double>(reached));
}

// 0 to 1: how much of the job is done. 0 where nobody knows.
double ShareDone(const JobConfig& job, const StepPlace& place) {
  double share = 0;
  if (job.steps() > 0) {
    share = static_cast<double>(StepsDone(place)) / static_cast<double>(job.steps());
  } else if (job.epochs() > 0) {
    share = place.epochs_done / static_cast<double>(job.epochs());
  }
  return std::min(share, 1.0);
}

double CosineFactor(const Cosine& cosine, const JobConfig& job, const StepPlace& place) {
  const double share = cosine.over_steps() == 0
                           ? ShareDone(job, place)
                           : std::min(1.0, static_cast<double>(StepsDone(place)) /
                                               static_cast<double>(cosine.over_steps()));
  if (share == 1) return cosine.minimum();  // in floating point the cosine of pi is not quite -1
  return cosine.minimum() + (1 - cosine.minimum()) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double WarmUpFactor(const LearningRate& rate, const StepPlace& place) {
  if (rate.warmup_epochs() > 0) {
    return std::min(1.0, (place.epochs_done + place.epochs) / rate.warmup_epochs());
  }
  if (place.step >= rate.warmup_steps()) return 1;
  return static_cast<double>(place.step) / static_cast<double>(rate.warmup_steps());
}

}  // namespace

double LearningRateFactor(const JobConfig& job, const StepPlace& place) {
  const LearningRate& rate = job.learning_rate();
  double factor = WarmUpFactor(rate, place);
  if (rate.has_step_decay()) factor *= DecayFactor(rate.step_decay(), place);
  if (rate.has_milestones()) factor *= MilestonesFactor(rate.milestones(), place);
  if (rate.has_cosine()) factor *= CosineFactor(rate.cosine(), job, place);
  if (rate.linear_scaling()) factor *= std::max(job.cluster().workers(), uint32_t{1});
  return factor;
}

}  // namespace parley
