#ifndef PARLEY_WORKER_DATA_IDX_H_
#define PARLEY_WORKER_DATA_IDX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/datasets.h"

namespace parley {

// An array of bytes from a file in the idx format of MNIST (LeCun et al.), packed by gzip or not.
struct IdxArray {
  std::vector<uint32_t> shape;
  std::vector<uint8_t> bytes;
};

// DataLoss where the magic number is not that of `dimensions` dimensions of bytes, or the file has
// fewer or more bytes than its header says; the message names the file and the counts.
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, size_t dimensions);

// The training and test set of a folder with MNIST's file names. NotFound says how to get them.
absl::StatusOr<Datasets> OpenIdx(const Idx& settings);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_IDX_H_
