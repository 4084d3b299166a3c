#ifndef PARLEY_TESTS_SIMULATION_OPEN_CALLS_H_
#define PARLEY_TESTS_SIMULATION_OPEN_CALLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "tests/simulation/shard_witness.h"

namespace parley {

// The calls that the shards of a simulated job have not answered yet. A Pull whose values are there
// must not be among them: it was forgotten. (Its caller would ask again after a while, so the job
// would go on, slowly.) One thread.
class OpenCalls final : public ShardObserver {
 public:
  // What a shard's core has.
  struct State {
    bool ready = false;
    uint64_t job_epoch = 0;
    uint64_t version = 0;
    uint32_t attempt = 0;  // of the open step
    // Of a step leader in bounded and async:
    std::optional<uint64_t> floor;
    bool barrier = false;
  };
  // nullopt: the shard has not joined, or has ended.
  OpenCalls(const JobConfig& job, std::function<std::optional<State>(const std::string&)> look);

  void OnAdvance(const std::string& shard, const AdvanceRequest& request) override;
  void OnClose(const std::string& shard, const CloseRequest& request) override;
  void OnBegin(const std::string& shard, uint64_t call, Verb verb,
               const PullRequest* pull) override;
  void OnEnd(const std::string& shard, uint64_t call) override;
  void AfterCall(const std::string& shard) override;

  int Count(const std::string& shard, Verb verb) const;
  // The newest step and attempt that any shard was asked to close.
  const std::pair<uint64_t, uint32_t>& closed() const { return closed_; }

  // What was broken since the last call.
  std::vector<std::string> TakeBroken() { return std::exchange(broken_, {}); }

 private:
  struct Call {
    Verb verb;
    PullRequest pull;
  };
  bool MayAnswer(const std::string& shard, const State& state, const PullRequest& pull) const;

  const std::optional<uint64_t> bound_;
  const std::function<std::optional<State>(const std::string&)> look_;
  std::map<std::string, std::map<uint64_t, Call>> open_;
  std::map<std::pair<std::string, Verb>, int> counts_;  // of them
  // What was found right last: with this state and floor, the calls up to this number.
  struct Looked {
    State state;
    std::pair<uint64_t, uint64_t> floor;
    uint64_t newest = 0;
  };
  std::map<std::string, Looked> looked_;
  std::map<std::string, std::pair<uint64_t, uint64_t>> floors_;  // as told, in that job_epoch
  std::pair<uint64_t, uint32_t> closed_;
  std::vector<std::string> broken_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_OPEN_CALLS_H_
