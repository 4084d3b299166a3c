#ifndef PARLEY_TESTS_SIMULATION_VERDICT_REPLAY_H_
#define PARLEY_TESTS_SIMULATION_VERDICT_REPLAY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/types.pb.h"
#include "tests/simulation/simulated_model.h"

namespace parley {

// The orders of a simulated job's data epochs, each computed once.
class EpochOrders {
 public:
  EpochOrders(const JobConfig& job, uint64_t samples)
      : seed_(job.seed()), shuffle_(job.data().shuffle()), samples_(samples) {}

  // The samples at the positions that these ranges name, in order.
  template <class Ranges>
  std::vector<uint64_t> SamplesOf(uint64_t epoch, const Ranges& ranges) {
    const std::vector<uint64_t>& order = Of(epoch);
    std::vector<uint64_t> samples;
    for (const SampleRange& range : ranges) {
      for (uint64_t at = range.begin(); at < range.end() && at < order.size(); ++at) {
        samples.push_back(order[at]);
      }
    }
    return samples;
  }

 private:
  const std::vector<uint64_t>& Of(uint64_t epoch);

  const uint64_t seed_;
  const bool shuffle_;
  const uint64_t samples_;
  std::map<uint64_t, std::vector<uint64_t>> orders_;
};

// The data position after each of these verdicts, which are all of a job, by step.
std::map<uint64_t, DataPosition> PositionsAfter(const std::map<uint64_t, Verdict>& verdicts,
                                                uint64_t samples);

// What the parameters of a simulated job must be at each version, from its verdicts alone: each
// step is computed once, with the operations of the shards in the order of the steps.
class VerdictReplay {
 public:
  VerdictReplay(const JobConfig& job, SimulatedModel model, uint64_t samples);

  // The verdict of a step, APPLY or SKIP, in any order; of each step once. What is wrong with it.
  std::optional<std::string> Add(const Verdict& verdict);

  // All elements of all tensors; null while a verdict up to there has not been heard of.
  const std::vector<float>* At(uint64_t version) const;

 private:
  std::optional<std::string> Step(const Verdict& verdict);
  // By how much to scale; checks that the verdict says so.
  std::optional<std::string> CheckClipping(const Verdict& verdict,
                                           const std::vector<float>& gradient) const;

  const SimulatedModel model_;
  const bool mean_;
  const uint64_t nominal_;
  const double clip_norm_;
  EpochOrders orders_;
  std::vector<std::vector<float>> versions_;  // by version, from 0
  std::map<uint64_t, Verdict> early_;         // those before have not come
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_VERDICT_REPLAY_H_
