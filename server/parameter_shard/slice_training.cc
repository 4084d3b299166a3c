#include "server/parameter_shard/slice_training.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/tensor.h"
#include "server/parameter_shard/sum_kernels.h"

namespace parley {
namespace {

constexpr size_t kAlignment = 64;

void Scale(absl::Span<float> values, float factor) {
  if (factor == 1) return;
  for (float& value : values) value *= factor;
}

// The gradient divided, then scaled: itself where there is nothing to do, else in `scratch`.
absl::Span<const float> Finish(absl::Span<const float> gradient, float divisor, float factor,
                               absl::Span<float> scratch) {
  if (divisor == 1 && factor == 1) return gradient;
  if (divisor != 1 || gradient.data() != scratch.data()) {
    DivideBy(divisor, gradient.data(), scratch);
  }
  Scale(scratch, factor);
  return scratch;
}

template <class T>
absl::InlinedVector<StateTensor<T>, SliceTraining::kMostStates> Named(
    const std::vector<std::string>& names, absl::Span<const FromTo<T>> states) {
  absl::InlinedVector<StateTensor<T>, SliceTraining::kMostStates> named;
  for (size_t i = 0; i < states.size(); ++i) named.push_back({names[i], states[i]});
  return named;
}

}  // namespace

SliceTraining::SliceTraining(std::string name, const TensorSpec& tensor, uint64_t elements,
                             const OptimizerSettings& settings)
    : name_(std::move(name)),
      dtype_(tensor.dtype()),
      elements_(elements),
      settings_(settings),
      state_names_(tensor.buffer() ? std::vector<std::string>() : OptimizerStateNames(settings)),
      state_stride_((elements * ElementBytes(dtype_) + kAlignment - 1) / kAlignment * kAlignment) {}

template <class T>
absl::Status SliceTraining::Apply(const SliceUpdate& update, uint64_t step_count,
                                  absl::Span<const float> sum, absl::Span<float> scratch,
                                  FromTo<T> parameter, absl::Span<const FromTo<T>> states,
                                  uint32_t owed) const {
  const auto named = Named(state_names_, states);
  return ApplyUpdate<T>(settings_, settings_.rate * update.rate_factor, step_count,
                        Finish(sum, update.divisor, update.clip_scale, scratch), parameter,
                        absl::MakeConstSpan(named), owed);
}

template <class T>
absl::Status SliceTraining::ApplyOwed(uint32_t owed, absl::Span<const FromTo<T>> states) const {
  const auto named = Named(state_names_, states);
  return parley::ApplyOwed<T>(settings_, owed, absl::MakeConstSpan(named));
}

template absl::Status SliceTraining::Apply<float>(const SliceUpdate&, uint64_t,
                                                  absl::Span<const float>, absl::Span<float>,
                                                  FromTo<float>, absl::Span<const FromTo<float>>,
                                                  uint32_t) const;
template absl::Status SliceTraining::Apply<double>(const SliceUpdate&, uint64_t,
                                                   absl::Span<const float>, absl::Span<float>,
                                                   FromTo<double>, absl::Span<const FromTo<double>>,
                                                   uint32_t) const;
template absl::Status SliceTraining::ApplyOwed<float>(uint32_t,
                                                      absl::Span<const FromTo<float>>) const;
template absl::Status SliceTraining::ApplyOwed<double>(uint32_t,
                                                       absl::Span<const FromTo<double>>) const;

absl::Status SliceTraining::In(const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat("slice ", name_, ": ", status.message()));
}

}  // namespace parley
