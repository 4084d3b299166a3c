#include "worker/fit.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"
#include "worker/batch_tensors.h"
#include "worker/data/batch.h"
#include "worker/loss.h"

namespace parley {
namespace {

// Samples looked at together: bounds the memory of the check.
constexpr uint64_t kAtOnce = 1000;

// What it gives has the shape and type of the model's outputs, and no meaning: all that would be
// trained is 0.
class OneLayerAtATime final : public Network {
 public:
  explicit OneLayerAtATime(const std::vector<LayerPlan>& layers) : layers_(layers) {}

  at::Tensor Forward(const at::Tensor& x) override {
    if (outputs_.defined()) return outputs_;
    LayerFlow flow = {x};
    for (const LayerPlan& plan : layers_) {
      LayerSet tensors(/*seed=*/0, LayerSet::Values::kZero);
      RunLayer(plan.make(tensors), /*training=*/false, flow);
    }
    outputs_ = flow.at(0);
    return outputs_;
  }
  void SetTraining(bool /*training*/) override {}
  std::vector<NamedTensor> Tensors() const override { return {}; }

 private:
  const std::vector<LayerPlan>& layers_;
  at::Tensor outputs_;  // of a sample
};

// The first sample through network and loss; gives the number of classes where y are class numbers.
absl::StatusOr<std::optional<int64_t>> Classes(const JobConfig& job, Network& network,
                                               const std::string& name, const DataSource& set) {
  Batch batch;
  batch.x.Resize(set.x().bytes());
  batch.y.Resize(set.y().bytes());
  absl::Status read = set.Fill({{0}}, batch.x.span(), batch.y.span());
  if (!read.ok()) return read;
  std::optional<int64_t> classes;
  const std::string what = absl::StrCat("the model and the ", name, " data");
  absl::Status status = CatchTorch(what, [&] {
    const c10::NoGradGuard no_grad;
    network.SetTraining(false);
    const at::Tensor outputs = network.Forward(BatchTensor(set.x(), 1, batch.x.span()));
    const at::Tensor y = BatchTensor(set.y(), 1, batch.y.span());
    if (LossOf(job) == CROSS_ENTROPY && AreClassNumbers(y) && outputs.dim() > 1) {
      classes = outputs.size(1);
      // Only how many there are and where: each number is looked at later.
      ComputeLoss(LossOf(job), outputs, at::zeros_like(y));
    } else {
      ComputeLoss(LossOf(job), outputs, y);
    }
  });
  status.Update(CatchTorch(what, [&] { network.SetTraining(true); }));
  if (!status.ok()) return status;
  return classes;
}

absl::Status CheckClassNumbers(const std::string& name, const DataSource& set, int64_t classes) {
  Batch batch;
  for (uint64_t begin = 0; begin < set.size(); begin += kAtOnce) {
    const uint64_t end = std::min(set.size(), begin + kAtOnce);
    std::vector<uint64_t>& samples = batch.draw.samples;
    samples.resize(end - begin);
    std::iota(samples.begin(), samples.end(), begin);
    batch.y.Resize(samples.size() * set.y().bytes());
    if (absl::Status read = set.FillY(batch.draw, batch.y.span()); !read.ok()) return read;
    const at::Tensor y =
        BatchTensor(set.y(), end - begin, batch.y.span()).to(at::kLong).reshape({-1});
    const auto each = static_cast<uint64_t>(y.numel()) / (end - begin);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t number = y.const_data_ptr<int64_t>()[i];
      if ((number >= 0 && number < classes) || number == kLeftOut) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "sample ", begin + static_cast<uint64_t>(i) / each, " of the ", name, " data has class ",
          number, ", but the model has ", classes, " classes, 0 to ", classes - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFit(const JobConfig& job, Network& network, const Datasets& data) {
  const auto check = [&](const std::string& name, const DataSource* set) -> absl::Status {
    if (set == nullptr || set->size() == 0) return absl::OkStatus();
    const auto classes = Classes(job, network, name, *set);
    if (!classes.ok()) return classes.status();
    if (!classes->has_value()) return absl::OkStatus();
    return CheckClassNumbers(name, *set, **classes);
  };
  if (absl::Status status = check("training", data.train.get()); !status.ok()) return status;
  return check("test", data.test.get());
}

absl::Status CheckFit(const JobConfig& job, const std::vector<LayerPlan>& layers,
                      const Datasets& data) {
  OneLayerAtATime network(layers);
  return CheckFit(job, network, data);
}

}  // namespace parley
