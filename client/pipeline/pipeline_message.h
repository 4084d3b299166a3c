#ifndef PARLEY_CLIENT_PIPELINE_PIPELINE_MESSAGE_H_
#define PARLEY_CLIENT_PIPELINE_PIPELINE_MESSAGE_H_

#include <compare>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/reference/remote_value.h"

namespace parley {

// What the processes of one pipeline tell each other (docs/pipelines.md). A worker gives its stages
// one unit of work after the other: a step, an evaluation, the end.
enum class PipelineKind : uint8_t {
  kWork,        // worker to stage: what the next unit is
  kActivation,  // the input of a part for a microbatch, from whoever has the part before, or the
                // data
  kGradient,    // the gradient of a part's output
  kTarget,      // worker to the stage of the last part: what the loss compares with
  kResult,      // stage of the last part to worker: of one microbatch
  kDone,        // stage to worker: it has computed its part of a step of the unit
  kOffer,       // stage to stage: what the other one's device may find this one's by
  kAnswer,      // stage to stage: whether it does
};

// One such message; each is sent once. All that is of one composition of the pipeline and one
// job_epoch lies between what is of an earlier and of a later one.
struct PipelineKey {
  uint64_t job_epoch = 0;
  uint64_t composition = 0;  // Session::Pipeline::composition
  uint64_t unit = 0;         // from 1 in each composition
  PipelineKind kind = PipelineKind::kWork;
  uint32_t part = 0;  // that gets it; of kWork and kDone: the stage; of kOffer, kAnswer: the sender
  uint32_t microbatch = 0;

  auto operator<=>(const PipelineKey&) const = default;
};

// A message as a value: its key, then what it brings.
// on_device: it brings tensors that stay on the sender's device (PeerTensor).
RemoteValue ToValue(const PipelineKey& key, std::vector<ValueTensor> tensors,
                    bool on_device = false);
bool IsOnDevice(const RemoteValue& value);
// InvalidArgument where no process of a pipeline has made it.
absl::StatusOr<PipelineKey> KeyOf(const RemoteValue& value);

// A vector as a tensor, and back: InvalidArgument for another type or shape.
ValueTensor TensorOf(std::vector<int64_t> numbers);
ValueTensor TensorOf(std::vector<double> numbers);
absl::StatusOr<std::vector<int64_t>> IntegersOf(const ValueTensor& tensor);
absl::StatusOr<std::vector<double>> DoublesOf(const ValueTensor& tensor);

// Of an evaluation the worker feeds so many batches before it has the result of the first of them,
// which keeps all stages at work (EvaluationOrder); one more with each result, in order.
constexpr uint32_t EvaluationBatchesFed(uint32_t stages) { return 2 * stages; }

// What kWork brings.
struct PipelineWork {
  enum class Kind : uint8_t { kStep, kEvaluation };
  Kind kind = Kind::kStep;
  uint64_t version = 0;  // to be evaluated; of kStep: the step
  uint32_t microbatches = 0;
  // kStep: so many steps one after the other, which overlap; `microbatches` are of all of them.
  uint32_t steps = 1;
};
std::vector<ValueTensor> ToTensors(const PipelineWork& work);
absl::StatusOr<PipelineWork> WorkOf(const RemoteValue& value);

}  // namespace parley

#endif  // PARLEY_CLIENT_PIPELINE_PIPELINE_MESSAGE_H_
