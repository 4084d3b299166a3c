#ifndef PARLEY_WORKER_DATA_PREFETCHER_H_
#define PARLEY_WORKER_DATA_PREFETCHER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/data/batch.h"
#include "worker/data/data_source.h"

namespace parley {

// Prepares batches before they are asked for, on a thread of its own, at most `ahead` at a time.
// What it is told to expect is a guess (Session::Ahead): a batch that was not expected is prepared
// when asked for, so the result never depends on it. Used by one thread, the trainer's.
class Prefetcher {
 public:
  // ahead = 0: no thread, everything is prepared when asked for.
  // allocate: of the batches' memory, instead of the heap.
  Prefetcher(std::shared_ptr<const DataSource> source, size_t ahead,
             AllocateBatch allocate = nullptr);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The batches that Take will ask for, in order; replaces what was expected before. What is
  // prepared already and still expected is kept.
  void Expect(std::vector<Draw> batches);

  // The batch with these samples, as they look in that epoch. The codes of DataSource::Fill.
  absl::StatusOr<std::unique_ptr<Batch>> Take(const Draw& draw);

  // The next of the batches that are expected, where it is prepared; else nullptr.
  std::unique_ptr<Batch> TakePrepared();

  // Gives a batch's memory back for a later one.
  void Recycle(std::unique_ptr<Batch> batch);

  // Batches prepared and not taken.
  size_t prepared() const;

 private:
  // Prepared by the thread; its error waits for the one who asks.
  struct Prepared {
    std::unique_ptr<Batch> batch;
    absl::Status status;
  };

  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || (!expected_.empty() && ready_.size() < ahead_);
  }
  bool NothingUnderWay() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !under_way_.has_value();
  }
  std::unique_ptr<Batch> Reuse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Prepare(const Draw& draw, Batch& batch) const;

  const std::shared_ptr<const DataSource> source_;
  const size_t ahead_;
  const AllocateBatch allocate_;

  mutable absl::Mutex mu_;
  std::deque<Prepared> ready_ ABSL_GUARDED_BY(mu_);
  std::optional<Draw> under_way_ ABSL_GUARDED_BY(mu_);  // comes after ready_
  bool keep_ ABSL_GUARDED_BY(mu_) = false;              // whether what is under way is still wanted
  std::deque<Draw> expected_ ABSL_GUARDED_BY(mu_);      // come after that
  std::vector<std::unique_ptr<Batch>> free_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_PREFETCHER_H_
