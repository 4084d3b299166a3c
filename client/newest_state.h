#ifndef PARLEY_CLIENT_NEWEST_STATE_H_
#define PARLEY_CLIENT_NEWEST_STATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/job_state.h"

namespace parley {

// What one membership has heard of the job: on its way from the membership's thread to the training
// thread, which takes it when it waits for something, and for whoever must know before that. All of
// it from any thread.
class NewestState {
 public:
  // Whether it is to be taken: else the training thread has not taken the last one yet, and will
  // find this one in its place.
  bool Hear(const SharedJobState& state);
  // Null: it was taken.
  SharedJobState Take();
  // The job has failed, or goes on without this process.
  void End();

  // Whether the processes behind a contributor are still those of this composition, as far as is
  // known: true before anything was heard.
  bool Stands(uint64_t job_epoch, uint32_t contributor, uint64_t composition) const;

 private:
  mutable absl::Mutex mu_;
  SharedJobState to_take_ ABSL_GUARDED_BY(mu_);
  SharedJobState heard_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_NEWEST_STATE_H_
