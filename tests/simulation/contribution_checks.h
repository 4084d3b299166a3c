#ifndef PARLEY_TESTS_SIMULATION_CONTRIBUTION_CHECKS_H_
#define PARLEY_TESTS_SIMULATION_CONTRIBUTION_CHECKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "tests/simulation/shard_witness.h"
#include "tests/simulation/simulated_model.h"
#include "tests/simulation/verdict_replay.h"

namespace parley {

// What each contribution of a simulated job in bounded or async must be: what a verdict names is in
// every slice, with the gradient of the very samples that it names; and in bounded no pull is
// answered that lacks an update that its bound asks for. One thread.
class ContributionChecks final : public ShardObserver {
 public:
  // takes_part: whether that contributor is, in that attempt, at work as the coordinator says now.
  // is_current: whether what is of that job_epoch still counts; it may call RollBack.
  ContributionChecks(const JobConfig& job, SimulatedModel model, uint64_t samples,
                     std::function<bool(uint32_t contributor, uint32_t attempt)> takes_part,
                     std::function<bool(uint64_t job_epoch)> is_current);

  // The job goes back: all that comes is new.
  void RollBack();

  void OnPush(const std::string& shard, const PushRequest& request,
              const PushReply& reply) override;
  void OnComplete(const std::string& shard, const CompleteRequest& request,
                  const CompleteReply& reply) override;
  void OnEnter(const std::string& shard, const EnterRequest& request,
               const EnterReply& reply) override;
  void OnPull(const std::string& shard, const PullRequest& request) override;

  // What was broken since the last call.
  std::vector<std::string> TakeBroken() { return std::exchange(broken_, {}); }

 private:
  // A contribution: contributor, attempt, clock.
  using Name = std::tuple<uint32_t, uint32_t, uint64_t>;
  struct Leased {
    uint32_t attempt = 0;
    uint64_t clock = 0;
  };

  void Follow(uint32_t contributor, uint32_t attempt, const Lease& lease);
  void Check(const Name& name, const Verdict& verdict);

  const SimulatedModel model_;
  const std::optional<uint64_t> bound_;
  const std::function<bool(uint32_t, uint32_t)> takes_part_;
  const std::function<bool(uint64_t)> is_current_;
  EpochOrders orders_;
  std::map<Name, std::map<uint32_t, std::string>>
      applied_;                        // bytes by slice; checked ones are gone
  std::map<uint32_t, Leased> leased_;  // by contributor
  std::map<Name, bool> checked_;
  std::vector<std::string> broken_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_CONTRIBUTION_CHECKS_H_
