#ifndef PARLEY_WORKER_FIT_H_
#define PARLEY_WORKER_FIT_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "worker/data/datasets.h"
#include "worker/models/layered_network.h"
#include "worker/models/network.h"

namespace parley {

// Whether network, data and loss fit each other: a sample of each set goes through the network and
// the loss, and each class number is one of the network's. A job that would fail in its first step,
// or in the middle of an epoch, so fails before it starts. InvalidArgument, naming the set and the
// sample. Leaves the network as it was, in training.
absl::Status CheckFit(const JobConfig& job, Network& network, const Datasets& data);

// The same of a model that no process has as a whole: one layer at a time is made, and has memory.
// Samples of both sets look alike, so that one of them goes through.
absl::Status CheckFit(const JobConfig& job, const std::vector<LayerPlan>& layers,
                      const Datasets& data);

}  // namespace parley

#endif  // PARLEY_WORKER_FIT_H_
