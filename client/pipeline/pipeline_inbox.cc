#include "client/pipeline/pipeline_inbox.h"

namespace parley {

void PipelineInbox::Put(const PipelineKey& key, ValuePtr value) {
  {
    absl::MutexLock lock(&mu_);
    if (key < first_) return;
    messages_.emplace(key, std::move(value));
  }
  wake_();
}

void PipelineInbox::Fail(const absl::Status& why) {
  {
    absl::MutexLock lock(&mu_);
    error_.Update(why);
  }
  wake_();
}

absl::Status PipelineInbox::error() const {
  absl::MutexLock lock(&mu_);
  return error_;
}

bool PipelineInbox::Has(const PipelineKey& key) const {
  absl::MutexLock lock(&mu_);
  return !error_.ok() || messages_.count(key) != 0;
}

ValuePtr PipelineInbox::Take(const PipelineKey& key) {
  absl::MutexLock lock(&mu_);
  const auto found = messages_.find(key);
  if (found == messages_.end()) return nullptr;
  ValuePtr value = std::move(found->second);
  messages_.erase(found);
  return value;
}

void PipelineInbox::Begin(uint64_t job_epoch, uint64_t composition, uint64_t unit) {
  absl::MutexLock lock(&mu_);
  first_ = PipelineKey();
  first_.job_epoch = job_epoch;
  first_.composition = composition;
  first_.unit = unit;
  messages_.erase(messages_.begin(), messages_.lower_bound(first_));
}

}  // namespace parley
