#ifndef PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZERS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZERS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/optimizer_settings.h"

namespace parley {

// Elements before a step, and where those after it are written: in their place, or in memory of
// their own, of as many elements.
template <class T>
struct FromTo {
  FromTo(absl::Span<T> in_place) : from(in_place), to(in_place) {}
  FromTo(absl::Span<const T> from, absl::Span<T> to) : from(from), to(to) {}
  absl::Span<const T> from;
  absl::Span<T> to;
};

// One tensor of optimizer state beside a range of a parameter; its name is one of
// OptimizerStateNames(settings).
template <class T>
struct StateTensor {
  std::string_view name;
  FromTo<T> values;
};

// One optimizer step over a range of a parameter, as torch.optim (single tensor, no
// foreach) of LibTorch defines it: the same operations in the same order in T, scalars computed in
// double and rounded to T where LibTorch does, and one rounding (fused) where LibTorch's kernels
// multiply and add at once. So SGD is LibTorch's bit for bit, the others but for the last bit of a
// square root (tests/parity). Every operation is elementwise: the result does not depend on how a
// tensor is cut, nor where it is written, nor on the machine. One difference to LibTorch: what is
// too small for a normal number counts as 0 (flush_denormals.h; on x86-64).
//
//   rate        of this step, schedule and overrides applied; settings.rate is not read
//   step_count  the optimizer's own count of steps of this parameter, this one included: from 1
//   gradient    reduced and clipped; as long as `parameter`
//   state       all of OptimizerStateNames(settings), in any order, each as long as `parameter`
//
// T: float or double. Kinds: SGD with momentum (Sutskever et al. 2013), Adam (Kingma and Ba 2015,
// AMSGrad: Reddi et al. 2018), AdamW (Loshchilov and Hutter 2019), Adagrad (Duchi et al. 2011),
// RMSprop (Hinton 2012; centered: Graves 2013). InvalidArgument, and nothing changed, where a
// length differs or a state tensor is missing.
//
// owed: so many steps before this one were of a gradient of +0, and `state` has not had them. Where
// CanOwe says so it may be kMostOwed, and state tensors may have no `to`: then they are owed one
// more.
inline constexpr uint32_t kMostOwed = 7;
template <class T>
absl::Status ApplyUpdate(const OptimizerSettings& settings, double rate, uint64_t step_count,
                         absl::Span<const float> gradient, FromTo<T> parameter,
                         absl::Span<const StateTensor<T>> state, uint32_t owed = 0);

// Whether what a step of a gradient of +0 makes of the state depends on that state alone, so that
// it can be left undone until the state is needed (and is more than nothing: Adam, AdamW).
bool CanOwe(const OptimizerSettings& settings);

// What so many steps of +0 make of the state, where CanOwe says so. As ApplyUpdate.
template <class T>
absl::Status ApplyOwed(const OptimizerSettings& settings, uint32_t owed,
                       absl::Span<const StateTensor<T>> state);

extern template absl::Status ApplyUpdate<float>(const OptimizerSettings&, double, uint64_t,
                                                absl::Span<const float>, FromTo<float>,
                                                absl::Span<const StateTensor<float>>, uint32_t);
extern template absl::Status ApplyUpdate<double>(const OptimizerSettings&, double, uint64_t,
                                                 absl::Span<const float>, FromTo<double>,
                                                 absl::Span<const StateTensor<double>>, uint32_t);
extern template absl::Status ApplyOwed<float>(const OptimizerSettings&, uint32_t,
                                              absl::Span<const StateTensor<float>>);
extern template absl::Status ApplyOwed<double>(const OptimizerSettings&, uint32_t,
                                               absl::Span<const StateTensor<double>>);

// What a state tensor holds before the first step: 0, except Adagrad's `sum`.
double InitialStateValue(const OptimizerSettings& settings, std::string_view name);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_OPTIMIZERS_H_
