#ifndef PARLEY_CLIENT_PIPELINE_PIPELINE_INBOX_H_
#define PARLEY_CLIENT_PIPELINE_PIPELINE_INBOX_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/pipeline/pipeline_message.h"

namespace parley {

// What has come for a process of a pipeline and nobody has taken yet, in whatever order it came: so
// a stage does its actions in the order of its schedule. Bounded by what a schedule lets the others
// send before this one has answered. Thread-safe.
class PipelineInbox {
 public:
  // wake: whenever something has come; on the thread that brings it.
  explicit PipelineInbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Dropped where it is of an earlier composition or unit than Begin has named. A second one of
  // the same key is dropped, too.
  void Put(const PipelineKey& key, ValuePtr value);

  // Something could not be taken in: every Has is true from now on, and error() says why.
  void Fail(const absl::Status& why);
  absl::Status error() const;

  bool Has(const PipelineKey& key) const;
  // nullptr where it is not there.
  ValuePtr Take(const PipelineKey& key);

  // What is of an earlier unit than this is of no use any more.
  void Begin(uint64_t job_epoch, uint64_t composition, uint64_t unit);

 private:
  const std::function<void()> wake_;
  mutable absl::Mutex mu_;
  PipelineKey first_ ABSL_GUARDED_BY(mu_);  // the smallest that counts
  std::map<PipelineKey, ValuePtr> messages_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PIPELINE_PIPELINE_INBOX_H_
