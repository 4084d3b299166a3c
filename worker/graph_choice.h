#ifndef PARLEY_WORKER_GRAPH_CHOICE_H_
#define PARLEY_WORKER_GRAPH_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "common/log.h"
#include "proto/job.pb.h"

namespace parley {

// Which steps are computed as a graph of the device's work (job: cuda_graphs), and why others are
// not: each reason stands in the log once. LocalCompute's.
class GraphChoice {
 public:
  // log: may be null. adds_up_on_devices: gradients leave for the devices of a node group.
  GraphChoice(const JobConfig& job, bool on_device, bool adds_up_on_devices, Log* log);

  // Steps that are computed as usual before one is recorded: LibTorch makes what it needs for an
  // operation, and chooses algorithms, when it does it first.
  static constexpr size_t kFirstSteps = 3;

  // Of a step with so many microbatches, the first of which has so many samples. True from
  // kFirstSteps on for steps of one microbatch that are as large as the largest of those.
  bool Choose(uint64_t step, size_t microbatches, size_t samples);
  // A step was computed so.
  void Computed(uint64_t step);
  // It could not be recorded: from now on no step is chosen.
  void CannotRecord(const std::string& why);

 private:
  bool No(uint64_t step, const std::string& why);

  Log* const log_;
  const bool wanted_;
  std::string never_;  // why no step is
  size_t steps_ = 0;   // that could have been
  size_t samples_ = 0;
  bool computed_ = false;
  std::set<std::string> said_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_GRAPH_CHOICE_H_
