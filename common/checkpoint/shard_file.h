#ifndef PARLEY_COMMON_CHECKPOINT_SHARD_FILE_H_
#define PARLEY_COMMON_CHECKPOINT_SHARD_FILE_H_

#include <cstdint>

#include "common/safetensors/writer.h"
#include "proto/checkpoint.pb.h"

namespace parley {

// What the manifest says of the file that a shard has written.
CheckpointFile DescribeShardFile(uint32_t shard, uint64_t job_epoch,
                                 const SafetensorsWriter::Written& written);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_SHARD_FILE_H_
