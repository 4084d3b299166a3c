#ifndef PARLEY_TESTS_SIMULATION_CLOCKED_CHECKS_H_
#define PARLEY_TESTS_SIMULATION_CLOCKED_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/session.h"
#include "proto/parameter_shard.pb.h"
#include "tests/simulation/shard_witness.h"
#include "tests/simulation/simulated_model.h"

namespace parley {

// What a simulated job in bounded or async must keep: it listens at the shards, writes down each
// push that is applied, and replays them. One thread.
class ClockedChecks final : public ShardObserver {
 public:
  // lowest: the contributor whose buffers count on that shard now. is_current: whether what is of
  // that job_epoch still counts; it may call RollBack.
  ClockedChecks(SimulatedModel model, std::function<uint32_t(const std::string& shard)> lowest,
                std::function<bool(uint64_t job_epoch)> is_current)
      : model_(std::move(model)), lowest_(std::move(lowest)), is_current_(std::move(is_current)) {}

  void OnPush(const std::string& shard, const PushRequest& request,
              const PushReply& reply) override;
  void OnAdvance(const std::string& shard, const AdvanceRequest& request) override;

  // The job goes back to the version of a barrier.
  void RollBack(uint64_t version);

  // The parameters of a session that has just pulled the version of a barrier: those that the
  // pushes applied until then make, and `expected`, unless that is empty. What is wrong.
  std::optional<std::string> CheckNamed(const Session& session,
                                        const std::vector<float>& expected) const;

  // Slices applied; how many the verdicts make if none was applied for nothing. They are equal
  // where no range was cut.
  uint64_t applied() const { return names_.size(); }
  uint64_t AppliedBy(const std::map<uint64_t, Verdict>& verdicts) const;

  // What the pushes applied until a barrier make of all elements of all tensors; nothing where no
  // barrier has named the version.
  std::optional<std::vector<float>> NamedValues(uint64_t version) const;

  const std::vector<std::string>& broken() const { return broken_; }
  const std::map<std::string, int>& happened() const { return happened_; }

 private:
  using Sums = std::map<uint32_t, std::vector<float>>;  // by slice
  // Of the job before it went back, for slices that no shard has changed since.
  static constexpr char kBefore[] = "";
  // job_epoch, slice, contributor, attempt, clock.
  using PushName = std::tuple<uint64_t, uint32_t, uint32_t, uint32_t, uint64_t>;

  const SimulatedModel model_;
  const std::function<uint32_t(const std::string&)> lowest_;
  const std::function<bool(uint64_t)> is_current_;
  std::set<PushName> names_;
  std::map<std::string, Sums> sums_;  // by shard: of all that was applied; of buffers the last one
  // By barrier version and shard: at the barrier.
  std::map<uint64_t, std::map<std::string, Sums>> named_;
  std::map<uint64_t, std::set<PushName>> names_at_;  // likewise
  std::map<std::string, uint64_t> epochs_;           // the newest of what a shard has applied
  std::set<std::pair<uint64_t, std::string>> told_;
  std::vector<std::string> broken_;
  std::map<std::string, int> happened_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_CLOCKED_CHECKS_H_
