#include "worker/step_batches.h"

#include <algorithm>
#include <utility>

namespace parley {
namespace {

size_t PrefetchedBatches(const JobConfig& job) {
  return job.data().has_prefetch() ? job.data().prefetch() : 2;
}

size_t EvaluationBatch(const JobConfig& job) {
  return job.data().evaluation_batch() > 0 ? job.data().evaluation_batch() : 500;
}

}  // namespace

std::vector<std::vector<uint64_t>> Microbatches(const std::vector<uint64_t>& samples,
                                                size_t batch) {
  std::vector<std::vector<uint64_t>> microbatches;
  for (size_t begin = 0; begin < samples.size(); begin += batch) {
    const size_t end = std::min(samples.size(), begin + batch);
    microbatches.emplace_back(samples.begin() + static_cast<std::ptrdiff_t>(begin),
                              samples.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return microbatches;
}

StepBatches::StepBatches(const JobConfig& job, const Datasets& data, AllocateBatch allocate)
    : batch_(std::max<size_t>(1, job.data().batch())),
      ahead_(PrefetchedBatches(job)),
      accumulate_(std::max<size_t>(1, job.accumulate())),
      prefetcher_(data.train, ahead_, std::move(allocate)) {}

size_t StepBatches::steps_ahead() const { return 1 + (ahead_ + accumulate_ - 1) / accumulate_; }

void StepBatches::Expect(const std::vector<StepPlan>& plans, const Draw* held) {
  std::vector<Draw> expected;
  for (const StepPlan& plan : plans) {
    for (auto& samples : Cut(plan)) expected.push_back({std::move(samples), plan.data_epoch});
  }
  if (held != nullptr && !expected.empty() && expected.front() == *held) {
    expected.erase(expected.begin());
  }
  prefetcher_.Expect(std::move(expected));
}

EvaluationBatches::EvaluationBatches(const JobConfig& job, const Datasets& data,
                                     const SampleRange& samples, uint64_t epoch)
    : prefetcher_(data.test, PrefetchedBatches(job)) {
  std::vector<uint64_t> all;
  for (uint64_t sample = samples.begin(); sample < samples.end(); ++sample) all.push_back(sample);
  for (auto& batch : Microbatches(all, EvaluationBatch(job))) {
    draws_.push_back({std::move(batch), epoch});
  }
  prefetcher_.Expect(draws_);
}

}  // namespace parley
