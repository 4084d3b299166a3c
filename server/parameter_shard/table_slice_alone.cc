// TableSlice: one push applied by itself, in bounded and async.
#include <utility>

#include "server/parameter_shard/table_slice.h"

namespace parley {
namespace {

// DC-ASGD: the gradient of `seen`, applied to `here`, with g * g for the diagonal of the Hessian.
template <class T>
void Compensate(absl::Span<float> gradient, absl::Span<const T> here, absl::Span<const T> seen,
                double lambda) {
  const T factor = static_cast<T>(lambda);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const T g = gradient[i];
    gradient[i] = static_cast<float>(g + factor * g * g * (here[i] - seen[i]));
  }
}

}  // namespace

absl::Status TableSlice::ApplyAlone(const PartRange& range, const TensorSlice& data,
                                    LoneUpdate update) {
  Drop();
  // A copy: the values cannot be taken back if it is written again while they are changed.
  TensorSlice copied = data;
  copied.owner = nullptr;
  if (absl::Status status = Add(range, copied, update.scale); !status.ok()) return status;
  const uint32_t contributor = range.contributor;
  const absl::Span<const uint32_t> contributors(&contributor, 1);
  if (!buffer_ && update.delay_compensation != 0 && update.seen != nullptr) {
    const absl::StatusOr<absl::Span<float>> sum = gradient_.Sum(contributors);
    if (!sum.ok()) return training_->In(sum.status());
    const absl::Span<float> gradient = *sum;
    const PinnedBuffer here = values_.PinVersion(values_.newest());
    if (training_->dtype() == F64) {
      Compensate<double>(gradient, here->as<double>(), update.seen->as<double>(),
                         update.delay_compensation);
    } else {
      Compensate<float>(gradient, here->as<float>(), update.seen->as<float>(),
                        update.delay_compensation);
    }
  }
  update.seen.reset();  // else the update would copy for it
  SliceUpdate step;
  step.step = version() + 1;
  step.contributors = contributors;
  step.rate_factor = update.rate_factor;
  const absl::Status status = Update(step);
  Drop();
  return status;
}

}  // namespace parley
