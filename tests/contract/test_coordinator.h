#ifndef PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_
#define PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/switching_coordinator.h"
#include "proto/job.pb.h"
#include "server/coordinator/locked_coordinator.h"
#include "server/coordinator/ticker.h"

namespace parley {

// A coordinator as its main would run it, without files: it ticks, and its file work succeeds at
// once.
class TestCoordinator {
 public:
  explicit TestCoordinator(const JobConfig& job);
  ~TestCoordinator();

  void Open(const std::string& address);
  // Answers what is parked; after it the clients must be kept away.
  void Close() { core()->Close(); }
  CoordinatorClient& client() { return served_; }
  // Waits, for a minute at most, until it knows that this step is decided.
  bool AwaitStep(uint64_t step);
  uint64_t job_epoch() const;
  // Waits, for a minute at most, until so many workers have finished.
  bool AwaitFinished(int workers);

  // Another process takes the place of a shard that is lost.
  struct NewShard {
    uint32_t ordinal = 0;
    std::string address;
    uint64_t incarnation = 0;  // with which it is going to join
  };
  // The job goes back: a new job_epoch, in which the shards start from a checkpoint `folder` with
  // this version and position. What belongs to later versions is forgotten. It is done by a new
  // core, which restores the state of the former one, so changed: what that one is asked meanwhile
  // is lost, as with a coordinator that is restarted.
  void GoBack(const std::string& folder, uint64_t version, const DataPosition& position,
              const std::optional<NewShard>& new_shard);

 private:
  std::shared_ptr<LockedCoordinator> core() const;
  bool Await(const std::function<bool(const CoordinatorCore&)>& holds) const;
  void Tick();

  const JobConfig job_;
  SwitchingCoordinator served_;  // the newest core
  mutable absl::Mutex mu_;
  // All of them: a former one may still be asked something.
  std::vector<std::shared_ptr<LockedCoordinator>> cores_ ABSL_GUARDED_BY(mu_);
  std::string address_;
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_TEST_COORDINATOR_H_
