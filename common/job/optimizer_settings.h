#ifndef PARLEY_COMMON_JOB_OPTIMIZER_SETTINGS_H_
#define PARLEY_COMMON_JOB_OPTIMIZER_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// The settings of one parameter: the job's optimizer with the first matching override applied.
// Names and meanings are PyTorch's.
struct OptimizerSettings {
  enum class Kind { kSgd, kAdam, kAdamW, kAdagrad, kRmsProp };
  Kind kind = Kind::kSgd;
  double rate = 0;
  double weight_decay = 0;
  double momentum = 0;    // SGD, RMSprop
  double dampening = 0;   // SGD
  bool nesterov = false;  // SGD
  double beta1 = 0;       // Adam, AdamW
  double beta2 = 0;
  bool amsgrad = false;
  double epsilon = 0;     // all but SGD
  double alpha = 0;       // RMSprop
  bool centered = false;  // RMSprop
  double rate_decay = 0;  // Adagrad
  double initial_accumulator = 0;
  uint64_t frozen_until_step = 0;  // not trained in steps up to and with this one
  double frozen_epochs = 0;        // nor before so many data epochs have been used
};

OptimizerSettings SettingsFor(const JobConfig& job, const std::string& parameter);

// InvalidArgument where an override counts for none of the model's parameters: else a name that is
// not quite right would do nothing, in silence. tensors: all of the model, buffers too.
absl::Status CheckOverrides(const JobConfig& job, const std::vector<TensorSpec>& tensors);

// The tensors of optimizer state beside a parameter, by PyTorch's names ("momentum_buffer",
// "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "sum", "square_avg", "grad_avg"); each has the
// parameter's shape and dtype.
std::vector<std::string> OptimizerStateNames(const OptimizerSettings& settings);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_OPTIMIZER_SETTINGS_H_
