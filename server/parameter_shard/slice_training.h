#ifndef PARLEY_SERVER_PARAMETER_SHARD_SLICE_TRAINING_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SLICE_TRAINING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/optimizer_settings.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/optimizers.h"

namespace parley {

// What a verdict does to a slice's values.
struct SliceUpdate {
  uint64_t step = 0;                        // becomes the version
  absl::Span<const uint32_t> contributors;  // whose contributions count, ascending
  absl::Span<const double> weights;         // theirs; of a buffer, above 0
  float divisor = 1;                        // of their sum
  float clip_scale = 1;
  double rate_factor = 1;  // on settings.rate
};

// How a slice takes an optimizer's steps: what does not change about it. Immutable.
class SliceTraining {
 public:
  // Of state tensors that an optimizer has.
  static constexpr size_t kMostStates = 4;

  // settings: of no use for a buffer, which has no state.
  SliceTraining(std::string name, const TensorSpec& tensor, uint64_t elements,
                const OptimizerSettings& settings);

  const std::string& name() const { return name_; }
  DataType dtype() const { return dtype_; }
  uint64_t elements() const { return elements_; }
  const OptimizerSettings& settings() const { return settings_; }
  const std::vector<std::string>& state_names() const { return state_names_; }
  // The state tensors lie one behind the other in one buffer.
  size_t state_stride() const { return state_stride_; }  // bytes from one to the next
  size_t state_bytes() const { return state_stride_ * state_names_.size(); }

  // The step `step_count` of a range of elements. sum: of the contributions; divided and clipped
  // here, in `scratch` where that is to be done, which may be where it is. states: as state_names.
  // owed: as ApplyUpdate's.
  template <class T>
  absl::Status Apply(const SliceUpdate& update, uint64_t step_count, absl::Span<const float> sum,
                     absl::Span<float> scratch, FromTo<T> parameter,
                     absl::Span<const FromTo<T>> states, uint32_t owed = 0) const;

  // As CanOwe and ApplyOwed of optimizers.h.
  bool CanOwe() const { return !state_names_.empty() && parley::CanOwe(settings_); }
  template <class T>
  absl::Status ApplyOwed(uint32_t owed, absl::Span<const FromTo<T>> states) const;

  // The error, which has happened in this slice.
  absl::Status In(const absl::Status& status) const;

 private:
  const std::string name_;  // "fc1.weight@0:65536", for messages
  const DataType dtype_;
  const uint64_t elements_;
  const OptimizerSettings settings_;
  const std::vector<std::string> state_names_;
  const size_t state_stride_;
};

extern template absl::Status SliceTraining::Apply<float>(const SliceUpdate&, uint64_t,
                                                         absl::Span<const float>, absl::Span<float>,
                                                         FromTo<float>,
                                                         absl::Span<const FromTo<float>>,
                                                         uint32_t) const;
extern template absl::Status SliceTraining::Apply<double>(const SliceUpdate&, uint64_t,
                                                          absl::Span<const float>,
                                                          absl::Span<float>, FromTo<double>,
                                                          absl::Span<const FromTo<double>>,
                                                          uint32_t) const;
extern template absl::Status SliceTraining::ApplyOwed<float>(uint32_t,
                                                             absl::Span<const FromTo<float>>) const;
extern template absl::Status SliceTraining::ApplyOwed<double>(
    uint32_t, absl::Span<const FromTo<double>>) const;

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SLICE_TRAINING_H_
