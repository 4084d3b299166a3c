#ifndef PARLEY_COMMON_CHECKPOINT_NAMES_H_
#define PARLEY_COMMON_CHECKPOINT_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/types.pb.h"

namespace parley {

// Names in a checkpoint (docs/checkpoints.md).

std::string StepFolderName(uint64_t step);  // "step-00000123"
// The step of such a name; nothing if it is none.
std::optional<uint64_t> StepOfFolder(std::string_view name);
// "shard-0.safetensors"; of a job that has gone back "shard-0.e2.safetensors", so that a process of
// the time before cannot write into it.
std::string ShardFileName(uint32_t shard, uint64_t job_epoch = 1);

// Optimizer state beside a tensor: "fc1.weight" and "exp_avg" give "fc1.weight.exp_avg".
std::string StateName(std::string_view tensor, std::string_view state);

// Of Manifest.optimizer_steps: the tensor's name for its first slice, else with the slice's first
// element.
std::string OptimizerStepsKey(std::string_view tensor, uint64_t begin);

// What a shard's file says of elements [begin, end) of a tensor or of a tensor's state (with its
// StateName, its type and the tensor's shape): a whole one keeps name and shape, a cut one is
// one-dimensional and named "fc1.weight@BEGIN:END".
TensorSpec PieceOf(const TensorSpec& tensor, uint64_t begin, uint64_t end);

// A name of a shard's file taken apart: "fc1.weight.exp_avg@0:65536".
struct PieceName {
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  std::string name;            // "fc1.weight.exp_avg"
  std::optional<Range> range;  // nullopt: whole
};
PieceName ParsePieceName(std::string_view name);

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_NAMES_H_
