#include "client/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace parley {
namespace {

// memcpy: the memory need not be aligned for T.
template <class T>
void AddAs(absl::Span<const std::byte> gradient, double& squares, bool& finite) {
  for (size_t at = 0; at + sizeof(T) <= gradient.size(); at += sizeof(T)) {
    T element;
    std::memcpy(&element, gradient.data() + at, sizeof(T));
    finite = finite && std::isfinite(element);
    squares += static_cast<double>(element) * static_cast<double>(element);
  }
}

}  // namespace

void GradientCheck::Add(DataType dtype, absl::Span<const std::byte> gradient) {
  if (dtype == F64) {
    AddAs<double>(gradient, squares_, finite_);
  } else {
    AddAs<float>(gradient, squares_, finite_);
  }
}

double GradientCheck::norm() const { return std::sqrt(squares_); }

double GradientCheck::ClipScale(double max_norm) const {
  return std::min(1.0, max_norm / (norm() + 1e-6));
}

}  // namespace parley
