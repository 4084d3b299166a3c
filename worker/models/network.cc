#include "worker/models/network.h"

#include "worker/models/simple_cnn.h"
#include "worker/models/torchscript.h"

namespace parley {

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const JobConfig& job, const SampleLayout& x) {
  switch (job.model().kind_case()) {
    case Model::kTorchscript:
      return LoadTorchScript(job.model().torchscript());
    case Model::kSimpleCnn:
      return MakeSimpleCnn(job.model().simple_cnn(), job.seed(), x);
    case Model::kOwn:
      return absl::InvalidArgumentError(
          "model: own {} is trained by a program of your own (client/example); parley-worker "
          "trains "
          "simple_cnn and torchscript");
    default:
      return absl::InvalidArgumentError("model: simple_cnn or torchscript must be set");
  }
}

}  // namespace parley
