#include "common/checkpoint/shard_file.h"

#include "common/checkpoint/names.h"

namespace parley {

CheckpointFile DescribeShardFile(uint32_t shard, uint64_t job_epoch,
                                 const SafetensorsWriter::Written& written) {
  CheckpointFile file;
  file.set_name(ShardFileName(shard, job_epoch));
  file.set_bytes(written.bytes);
  file.set_crc32(written.crc32);
  file.set_shard(shard);
  file.set_header_bytes(written.header_bytes);
  file.set_block_bytes(written.block_bytes);
  file.set_block_crc32s(written.block_crc32s);
  return file;
}

}  // namespace parley
