#ifndef PARLEY_SERVER_PIPELINE_STAGE_WEIGHT_STASH_H_
#define PARLEY_SERVER_PIPELINE_STAGE_WEIGHT_STASH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/pipeline/peer_waiter.h"
#include "client/session.h"
#include "client/torch/module_binding.h"

namespace parley {

// The weights of a stage through steps that overlap: some versions of them at once, so that the
// backward of a microbatch has the weights of its forward (PipeDream's weight stashing, Narayanan
// et al. 2019), while a thread of its own sends each step's gradients, waits for the verdict and
// brings what it makes. Step t of the stretch is computed with the weights of t - 1 - delay, or
// with those that the stretch began with.
//
// Owned by a Stage while it does one stretch. Its thread alone calls the session's verbs in that
// time; all of its methods are the training thread's, which computes.
class WeightStash final : public PeerWaiter {
 public:
  struct Options {
    std::vector<StepPlan> plans;  // of the stretch, as Session::Ahead gives them; at least one
    uint32_t delay = 1;           // steps
    // What the training thread has waited for so long the session tells (Session::TellWaits).
    absl::Duration quiet = absl::Seconds(1);
    // PipelineLinks::lost: weights, or the last verdict, may then never come.
    std::function<absl::Status()> lost = [] { return absl::OkStatus(); };
    // How long the session may take to hear that a process is gone that could not be reached.
    absl::Duration patience = absl::InfiniteDuration();
    // A step is decided; on the stash's thread, one after the other.
    std::function<void(const Verdict&, const StepPlan&)> on_decided;
  };

  // The session is before the first of the steps, with its parameters pulled.
  WeightStash(Options options, Session& session, ModuleBinding& binding);
  // As Stop, and puts the session's own parameters back in place.
  ~WeightStash() override;

  // Copies the weights that it begins with, and begins. The codes of Session::AwaitParameter.
  absl::Status Begin();

  // What is computed next is of the step with this index in the stretch. Waits until its weights
  // are here. An error: they cannot come; to be given to End.
  absl::Status Use(size_t step);

  // What the binding has gathered since the last call is the step's gradient, and complete: neither
  // forward nor backward of it follows. One step after the other.
  absl::Status Submit(size_t step);

  // How the training thread waits for messages meanwhile.
  absl::Status AwaitPeers(const std::string& what, const std::function<bool()>& done) override;
  void Wake() override;  // any thread

  // Copies that it has of the weights, and of gradients that are not sent yet; for tests.
  size_t copies();

  // The training thread has computed all, or cannot go on: waits for the verdict of the last step,
  // or at once for the thread's end; of Unavailable for `patience`, then the job fails with that
  // reason. The first error, which may be the thread's. False: the job has
  // gone on without one of the steps (Session::Complete's STALE), and the session with it.
  absl::StatusOr<bool> End(absl::Status computed);

 private:
  uint64_t VersionOf(size_t step) const;  // whose weights the step is computed with
  void Exchange();                        // the thread
  absl::Status ExchangeStep(size_t step);
  absl::Status AwaitSubmitted(size_t step);
  void WaitsFor(const std::string& what) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AwaitLast();
  // The training thread submits no more, and why. False: the job does not go on by itself.
  bool Stop(const absl::Status& why);
  absl::Status KeepVersion(uint64_t version);

  const Options options_;
  Session& session_;
  ModuleBinding& binding_;
  std::thread thread_;

  // The training thread's.
  std::optional<uint64_t> used_;  // the version that the module computes with

  absl::Mutex mu_;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;  // what the training thread waits for may have come
  std::map<uint64_t, ModuleBinding::StepTensors> versions_ ABSL_GUARDED_BY(mu_);
  // To be used again, or empty. One: more would be copies that nobody counts.
  ModuleBinding::StepTensors free_ ABSL_GUARDED_BY(mu_);
  std::map<size_t, ModuleBinding::StepTensors> submitted_ ABSL_GUARDED_BY(mu_);  // not sent yet
  // What the training thread has waited for since a while; or empty.
  std::string waits_for_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;  // the training thread submits no more
  bool ended_ ABSL_GUARDED_BY(mu_) = false;    // the thread has
  bool stale_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_WEIGHT_STASH_H_
