#ifndef PARLEY_CLIENT_GRADIENT_CHECK_H_
#define PARLEY_CLIENT_GRADIENT_CHECK_H_

#include <cstddef>

#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// A worker's own gradient, where it clips or checks it by itself (bounded and async): gathers its
// tensors one by one.
class GradientCheck {
 public:
  // A trained tensor: F32 or F64.
  void Add(DataType dtype, absl::Span<const std::byte> gradient);

  // Of all elements, in float64.
  double norm() const;
  bool finite() const { return finite_; }

  // The factor that brings the norm down to max_norm, as torch.nn.utils.clip_grad_norm_.
  double ClipScale(double max_norm) const;

 private:
  double squares_ = 0;
  bool finite_ = true;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_GRADIENT_CHECK_H_
