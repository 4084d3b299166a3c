#include "common/job/data_division.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/seed.h"

namespace parley {
namespace {

// Uniform in [0, bound): numbers of the last, partial run of `bound` are drawn again. Written out
// because std::uniform_int_distribution is another one in each standard library.
uint64_t Below(uint64_t bound, std::mt19937_64& generator) {
  const uint64_t excess = (std::numeric_limits<uint64_t>::max() % bound + 1) % bound;
  while (true) {
    const uint64_t drawn = generator();
    if (drawn <= std::numeric_limits<uint64_t>::max() - excess) return drawn % bound;
  }
}

SampleRange Range(uint64_t begin, uint64_t end) {
  SampleRange range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

// What of [0, training_samples) is in no range of `used`, which is sorted: what comes after all of
// them, then the holes.
std::vector<SampleRange> Unused(const DataPosition& position, uint64_t training_samples) {
  std::vector<SampleRange> unused;
  uint64_t from = 0;
  for (const SampleRange& used : position.used()) {
    const uint64_t to = std::min(used.begin(), training_samples);
    if (from < to) unused.push_back(Range(from, to));
    from = std::max(from, used.end());
  }
  if (from < training_samples) unused.insert(unused.begin(), Range(from, training_samples));
  return unused;
}

}  // namespace

uint64_t NominalSamples(const JobConfig& job) {
  return uint64_t{job.data().batch()} * std::max(job.accumulate(), uint32_t{1});
}

uint32_t LeastCounted(const JobConfig& job, uint32_t contributors) {
  const uint32_t backup = job.consistency().sync().backup();
  return contributors > backup ? contributors - backup : 1;
}

uint64_t TotalSteps(const JobConfig& job, uint64_t training_samples) {
  if (job.has_steps()) return StepsAskedFor(job);
  const uint64_t counted = IsClocked(job) ? 1 : LeastCounted(job, job.cluster().workers());
  const uint64_t samples = std::max(NominalSamples(job), uint64_t{1}) * counted;
  const uint64_t steps = training_samples / samples + (training_samples % samples != 0 ? 1 : 0);
  uint64_t total = 0;
  if (__builtin_mul_overflow(steps, job.epochs(), &total)) {
    return std::numeric_limits<uint64_t>::max();
  }
  return total;
}

bool IsDone(const JobConfig& job, const DataPosition& position, uint64_t version) {
  return job.has_steps() ? version >= StepsAskedFor(job) : position.epoch() >= job.epochs();
}

std::vector<std::vector<SampleRange>> Divide(const DataPosition& position,
                                             uint64_t training_samples, uint32_t contributors,
                                             uint64_t nominal) {
  std::vector<std::vector<SampleRange>> division(contributors);
  if (contributors == 0 || nominal == 0) return division;
  uint32_t contributor = 0;
  uint64_t taken = 0;
  for (const SampleRange& unused : Unused(position, training_samples)) {
    uint64_t from = unused.begin();
    while (from < unused.end()) {
      const uint64_t to = from + std::min(unused.end() - from, nominal - taken);
      division[contributor].push_back(Range(from, to));
      taken += to - from;
      from = to;
      if (taken < nominal) continue;
      taken = 0;
      if (++contributor == contributors) return division;
    }
  }
  return division;
}

SchedulePlace PlaceInData(const JobConfig& job, const DataPosition& position,
                          uint64_t training_samples, uint32_t workers) {
  SchedulePlace place;
  if (training_samples == 0) return place;
  const auto all = static_cast<double>(training_samples);
  uint64_t used = 0;
  for (const SampleRange& range : position.used()) used += range.end() - range.begin();
  const uint64_t rest = training_samples - std::min(used, training_samples);
  const uint64_t full = NominalSamples(job) * LeastCounted(job, workers);
  place.set_epochs_done(static_cast<double>(position.epoch()) + static_cast<double>(used) / all);
  place.set_epochs(static_cast<double>(std::min(full, rest)) / all);
  return place;
}

absl::Status MarkUsed(DataPosition& position, uint64_t epoch,
                      const std::vector<SampleRange>& ranges, uint64_t training_samples) {
  if (epoch != position.epoch()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "samples of data epoch ", epoch, " are reported as used in data epoch ", position.epoch()));
  }
  std::vector<SampleRange> all(position.used().begin(), position.used().end());
  for (const SampleRange& range : ranges) {
    if (range.begin() >= range.end() || range.end() > training_samples) {
      return absl::InvalidArgumentError(absl::StrCat("[", range.begin(), ", ", range.end(),
                                                     ") is no range of ", training_samples,
                                                     " samples"));
    }
    all.push_back(range);
  }
  std::sort(all.begin(), all.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.begin() < b.begin(); });
  std::vector<SampleRange> merged;
  for (const SampleRange& range : all) {
    if (merged.empty() || merged.back().end() < range.begin()) {
      merged.push_back(range);
    } else if (merged.back().end() == range.begin()) {
      merged.back().set_end(range.end());
    } else {
      return absl::InvalidArgumentError(absl::StrCat("samples [", range.begin(), ", ",
                                                     std::min(range.end(), merged.back().end()),
                                                     ") of data epoch ", epoch, " are used twice"));
    }
  }
  if (!merged.empty() && merged.front().begin() == 0 && merged.front().end() == training_samples) {
    position.set_epoch(epoch + 1);
    merged.clear();
  }
  position.mutable_used()->Assign(merged.begin(), merged.end());
  return absl::OkStatus();
}

std::vector<uint64_t> EpochOrder(uint64_t seed, uint64_t epoch, uint64_t training_samples,
                                 bool shuffle) {
  std::vector<uint64_t> order(training_samples);
  std::iota(order.begin(), order.end(), uint64_t{0});
  if (!shuffle) return order;
  std::mt19937_64 generator(DeriveSeed(seed, "shuffle", {epoch}));
  for (uint64_t left = training_samples; left > 1; --left) {
    std::swap(order[left - 1], order[Below(left, generator)]);
  }
  return order;
}

uint64_t Count(const std::vector<SampleRange>& ranges) {
  uint64_t samples = 0;
  for (const SampleRange& range : ranges) samples += range.end() - range.begin();
  return samples;
}

}  // namespace parley
