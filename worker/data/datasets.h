#ifndef PARLEY_WORKER_DATA_DATASETS_H_
#define PARLEY_WORKER_DATA_DATASETS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_source.h"

namespace parley {

// What a job trains on and is tested on.
struct Datasets {
  std::shared_ptr<const DataSource> train;
  std::shared_ptr<const DataSource> test;  // null: no evaluation

  uint64_t test_samples() const { return test == nullptr ? 0 : test->size(); }
};

// Opens the data that the job names, all but images in memory. seed: the job's, from which follows
// how a sample looks in each data epoch. Training and test samples look alike, and there is at
// least one to train on. NotFound (with how to get the data), DataLoss (a damaged file, with byte
// counts) or InvalidArgument; messages name the file.
absl::StatusOr<Datasets> OpenDatasets(const Data& settings, uint64_t seed = 0);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_DATASETS_H_
