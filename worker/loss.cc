#include "worker/loss.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>

#include <algorithm>

namespace parley {

Loss LossOf(const JobConfig& job) {
  return job.loss() == LOSS_UNSPECIFIED ? CROSS_ENTROPY : job.loss();
}

bool AreClassNumbers(const at::Tensor& y) {
  return c10::isIntegralType(y.scalar_type(), /*includeBool=*/false);
}

namespace {

// Where a sample has several targets and the classes of each lie side by side in memory, as those
// of a linear layer whose outputs were transposed do, each target is taken as a sample: the same
// mean. Else LibTorch copies them into the order of their dimensions, and back for the gradients,
// and a softmax along the second one has a GPU read far apart, by as many of its processors as
// there are samples.
at::Tensor MeanCrossEntropy(const at::Tensor& outputs, const at::Tensor& classes) {
  if (outputs.dim() <= 2) return at::cross_entropy_loss(outputs, classes);
  const at::Tensor last = outputs.movedim(1, -1);
  if (!last.is_contiguous() || last.sizes().slice(0, last.dim() - 1) != classes.sizes()) {
    return at::cross_entropy_loss(outputs, classes);
  }
  return at::cross_entropy_loss(last.flatten(0, -2), classes.reshape({-1}));
}

}  // namespace

at::Tensor ComputeLoss(Loss kind, const at::Tensor& outputs, const at::Tensor& y) {
  TORCH_CHECK(outputs.dim() > 0 && y.dim() > 0 && outputs.size(0) == y.size(0), "the model gives ",
              outputs.sizes(), " for ", y.sizes(), " samples of y");
  if (kind == MEAN_SQUARED_ERROR) {
    // mse_loss would stretch [N, 1] and [N] to [N, N].
    TORCH_CHECK(outputs.sizes() == y.sizes(), "mean squared error: the model gives ",
                outputs.sizes(), ", but y has ", y.sizes());
    return at::mse_loss(outputs, y.to(outputs.scalar_type()));
  }
  if (!AreClassNumbers(y)) return at::cross_entropy_loss(outputs, y.to(outputs.scalar_type()));
  const at::Tensor classes = y.to(at::kLong);
  // A mean of nothing is 0 / 0. Without a look at the numbers: they may be on their way on a GPU.
  return MeanCrossEntropy(outputs, classes).masked_fill(classes.eq(kLeftOut).all(), 0);
}

namespace {

// Of so many samples with these targets.
double LeftOut(Loss kind, const at::Tensor& y, double samples) {
  if (kind != CROSS_ENTROPY || !AreClassNumbers(y) || y.numel() == 0) return 0;
  // As int64: a uint8 is compared as such, with -100 as 156.
  const auto targets = static_cast<double>(y.to(at::kLong).eq(kLeftOut).sum().item().toLong());
  return samples * targets / static_cast<double>(y.numel());
}

}  // namespace

void AddToEvaluation(Loss kind, const at::Tensor& outputs, const at::Tensor& y,
                     Evaluation& evaluation) {
  const int64_t samples = outputs.size(0);
  const double loss = ComputeLoss(kind, outputs, y).item().toDouble();
  evaluation.set_samples(evaluation.samples() + static_cast<uint64_t>(samples));
  const double left_out = LeftOut(kind, y, static_cast<double>(samples));
  evaluation.set_left_out(evaluation.left_out() + left_out);
  evaluation.set_loss_sum(evaluation.loss_sum() + loss * (static_cast<double>(samples) - left_out));
  if (kind != CROSS_ENTROPY || !AreClassNumbers(y)) return;
  evaluation.set_tokens(outputs.dim() > 2);
  if (outputs.dim() != 2) return;
  evaluation.set_classes(true);
  const at::Tensor best = std::get<1>(at::topk(outputs, std::min<int64_t>(5, outputs.size(1))));
  const at::Tensor hits = best.eq(y.to(at::kLong).unsqueeze(1));
  const int64_t top1 = hits.select(1, 0).sum().item().toLong();
  const int64_t top5 = hits.sum().item().toLong();
  evaluation.set_correct(evaluation.correct() + static_cast<uint64_t>(top1));
  evaluation.set_correct_top5(evaluation.correct_top5() + static_cast<uint64_t>(top5));
}

}  // namespace parley
