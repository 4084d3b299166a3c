#ifndef PARLEY_WORKER_AUTOCAST_H_
#define PARLEY_WORKER_AUTOCAST_H_

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "proto/job.pb.h"

namespace parley {

// While it lives, LibTorch's operations of this thread compute in the job's precision where that
// does no harm (products of matrices, convolutions), and in float32 where it does: torch.autocast.
// The operations' backward, wherever it runs later, computes in what their forward did. With
// FLOAT32 it does nothing. Parameters stay float32; so do their gradients. On the training thread;
// scopes may nest. LibTorch keeps each parameter's rounded copy until the outermost scope ends: do
// not change parameters within.
class AutocastScope {
 public:
  AutocastScope(Precision precision, c10::DeviceType device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool active_;
  const c10::DeviceType device_;
  // What was so before.
  bool was_enabled_ = false;
  c10::ScalarType type_before_ = c10::kFloat;
};

}  // namespace parley

#endif  // PARLEY_WORKER_AUTOCAST_H_
