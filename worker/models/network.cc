#include "worker/models/network.h"

#include "worker/models/resnet.h"
#include "worker/models/simple_cnn.h"
#include "worker/models/torchscript.h"
#include "worker/models/vgg.h"
#include "worker/models/xresnet.h"

namespace parley {

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const JobConfig& job, const SampleLayout& x) {
  switch (job.model().kind_case()) {
    case Model::kTorchscript:
      return LoadTorchScript(job.model().torchscript());
    case Model::kSimpleCnn:
      return MakeSimpleCnn(job.model().simple_cnn(), job.seed(), x);
    case Model::kResnet:
      return MakeResNet(job.model().resnet(), job.seed(), x);
    case Model::kVgg19:
      return MakeVgg19(job.model().vgg19(), job.seed(), x);
    case Model::kXresnet50:
      return MakeXResNet50(job.model().xresnet50(), job.seed(), x);
    case Model::kOwn:
      return absl::InvalidArgumentError(
          "model: own {} is trained by a program of your own (client/example); parley-worker "
          "trains simple_cnn, resnet, vgg19, xresnet50 and torchscript");
    default:
      return absl::InvalidArgumentError(
          "model: simple_cnn, resnet, vgg19, xresnet50 or torchscript must be set");
  }
}

}  // namespace parley
