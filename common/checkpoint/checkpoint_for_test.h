#ifndef PARLEY_COMMON_CHECKPOINT_CHECKPOINT_FOR_TEST_H_
#define PARLEY_COMMON_CHECKPOINT_CHECKPOINT_FOR_TEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/safetensors/writer.h"
#include "proto/checkpoint.pb.h"
#include "proto/types.pb.h"

namespace parley {

// A small model with optimizer state: a large matrix, a bias, a scalar, an empty tensor, a buffer
// of type I64 and one of U8. Tests only.
struct ModelForTest {
  explicit ModelForTest(uint32_t seed);

  Manifest manifest;                                     // but for its files
  std::vector<TensorSpec> all;                           // tensors and states, full shapes
  std::map<std::string, std::vector<std::byte>> values;  // of all
};

// Cuts a model into so many shards at random places (pieces of one shard are not always next to
// each other) and commits it as a checkpoint in `folder`, one step's folder, with sums of blocks of
// so many bytes.
absl::Status WriteCheckpointForTest(FileSystem& files, const std::string& folder,
                                    const ModelForTest& model, uint32_t shards, uint32_t seed,
                                    uint64_t block_bytes = kSumBlockBytes);

// Whether byte `at` of a manifest, as FormatManifest lays it out, is of the name of a field or of a
// value: changed, it says something that a later release may have said.
bool IsOfAName(const std::string& manifest, size_t at);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_CHECKPOINT_FOR_TEST_H_
