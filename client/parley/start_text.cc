#include "client/parley/start_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace parley {

absl::Status CheckModelStart(const StartPoint& start, const ModelDescription& model) {
  RegisterModelRequest registering;
  for (const TensorSpec& tensor : model.tensors) *registering.add_tensors() = tensor;
  registering.set_training_samples(model.training_samples);
  const absl::Status status = CheckStart(start, registering, kListAll);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("checkpoint.start_from: ", status.message()));
}

std::string StartText(const StartPoint& start) {
  if (start.weights) {
    return absl::StrFormat("%-20s %s: parameters and buffers; optimizer, steps and data anew\n",
                           "starts from", start.folder);
  }
  return absl::StrFormat("%-20s %s: step %d of job %s\n", "starts from", start.folder,
                         start.manifest.step(), start.manifest.job_name());
}

}  // namespace parley
