#include "worker/data/prefetcher.h"

#include <utility>

namespace parley {

Prefetcher::Prefetcher(std::shared_ptr<const DataSource> source, size_t ahead,
                       AllocateBatch allocate)
    : source_(std::move(source)), ahead_(ahead), allocate_(std::move(allocate)) {
  if (ahead_ > 0) thread_ = std::thread([this] { Run(); });
}

Prefetcher::~Prefetcher() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Prefetcher::Expect(std::vector<Draw> batches) {
  if (ahead_ == 0) return;
  absl::MutexLock lock(&mu_);
  size_t kept = 0;
  while (kept < ready_.size() && kept < batches.size() &&
         ready_[kept].batch->draw == batches[kept]) {
    ++kept;
  }
  const bool all_kept = kept == ready_.size();
  while (ready_.size() > kept) {
    free_.push_back(std::move(ready_.back().batch));
    ready_.pop_back();
  }
  keep_ =
      all_kept && under_way_.has_value() && kept < batches.size() && *under_way_ == batches[kept];
  if (keep_) ++kept;
  expected_.assign(std::make_move_iterator(batches.begin() + static_cast<std::ptrdiff_t>(kept)),
                   std::make_move_iterator(batches.end()));
}

absl::StatusOr<std::unique_ptr<Batch>> Prefetcher::Take(const Draw& draw) {
  std::unique_ptr<Batch> batch;
  {
    absl::MutexLock lock(&mu_);
    // Reading takes its time, but ends: the thread waits for nobody.
    if (ready_.empty() && keep_ && under_way_ == draw) {
      mu_.Await(absl::Condition(this, &Prefetcher::NothingUnderWay));
    }
    if (!ready_.empty() && ready_.front().batch->draw == draw) {
      Prepared prepared = std::move(ready_.front());
      ready_.pop_front();
      if (!prepared.status.ok()) return prepared.status;
      return std::move(prepared.batch);
    }
    // The thread need not do what is done here.
    if (ready_.empty() && !keep_ && !expected_.empty() && expected_.front() == draw) {
      expected_.pop_front();
    }
    batch = Reuse();
  }
  if (const absl::Status status = Prepare(draw, *batch); !status.ok()) return status;
  return batch;
}

std::unique_ptr<Batch> Prefetcher::TakePrepared() {
  absl::MutexLock lock(&mu_);
  if (ready_.empty() || !ready_.front().status.ok()) return nullptr;
  std::unique_ptr<Batch> batch = std::move(ready_.front().batch);
  ready_.pop_front();
  return batch;
}

void Prefetcher::Recycle(std::unique_ptr<Batch> batch) {
  absl::MutexLock lock(&mu_);
  if (free_.size() <= ahead_ + 1) free_.push_back(std::move(batch));
}

size_t Prefetcher::prepared() const {
  absl::MutexLock lock(&mu_);
  return ready_.size();
}

void Prefetcher::Run() {
  absl::MutexLock lock(&mu_);
  while (true) {
    mu_.Await(absl::Condition(this, &Prefetcher::HasWork));
    if (stopping_) return;
    under_way_ = std::move(expected_.front());
    expected_.pop_front();
    keep_ = true;
    Prepared prepared{Reuse(), absl::OkStatus()};
    const Draw draw = *under_way_;
    mu_.Unlock();
    prepared.status = Prepare(draw, *prepared.batch);
    mu_.Lock();
    if (keep_) {
      ready_.push_back(std::move(prepared));
    } else {
      free_.push_back(std::move(prepared.batch));
    }
    under_way_.reset();
    keep_ = false;
  }
}

std::unique_ptr<Batch> Prefetcher::Reuse() {
  if (free_.empty()) return std::make_unique<Batch>(allocate_);
  std::unique_ptr<Batch> batch = std::move(free_.back());
  free_.pop_back();
  return batch;
}

absl::Status Prefetcher::Prepare(const Draw& draw, Batch& batch) const {
  batch.draw = draw;
  batch.x.Resize(draw.samples.size() * source_->x().bytes());
  batch.y.Resize(draw.samples.size() * source_->y().bytes());
  return source_->Fill(draw, batch.x.span(), batch.y.span());
}

}  // namespace parley
