#ifndef PARLEY_WORKER_LOSS_H_
#define PARLEY_WORKER_LOSS_H_

#include <ATen/core/Tensor.h>

#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"

namespace parley {

// PyTorch's cross-entropy leaves out what has this class number.
inline constexpr int64_t kLeftOut = -100;

// The job's loss, or the default.
Loss LossOf(const JobConfig& job);

// Whether `y` are class numbers rather than values or probabilities.
bool AreClassNumbers(const at::Tensor& y);

// The mean loss over the samples of a batch (for MEAN_SQUARED_ERROR over their elements too). For
// CROSS_ENTROPY `outputs` are logits [samples, classes, ...] and `y` class numbers of any integer
// type, or class probabilities; for MEAN_SQUARED_ERROR both have the same shape. Class numbers that
// are kLeftOut count nowhere; of nothing else the loss is 0, and so are its gradients. Throws
// c10::Error where they do not fit.
at::Tensor ComputeLoss(Loss kind, const at::Tensor& outputs, const at::Tensor& y);

// Adds a batch to an evaluation: samples, how much of them is left out, the sum of the others'
// losses, and for class numbers how many of them are the largest and among the five largest logits,
// or that there are several of them to a sample. Throws as ComputeLoss.
void AddToEvaluation(Loss kind, const at::Tensor& outputs, const at::Tensor& y,
                     Evaluation& evaluation);

}  // namespace parley

#endif  // PARLEY_WORKER_LOSS_H_
