#include "server/parameter_shard/table_slice.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"
#include "server/parameter_shard/gradient_norm.h"
#include "server/parameter_shard/optimizers.h"
#include "server/parameter_shard/sum_kernels.h"

namespace parley {
namespace {

constexpr size_t kAlignment = 64;

// Elements that are divided, clipped and applied while they are in the cache.
constexpr uint64_t kTile = 8192;
// The same where they are added up first, into memory that stays in the nearest cache.
constexpr uint64_t kLentTile = 1024;

void Scale(absl::Span<float> values, float factor) {
  if (factor == 1) return;
  for (float& value : values) value *= factor;
}

// The gradient divided, then scaled: itself where there is nothing to do, else in `scratch`, which
// may be where it is.
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
void Fill(Buffer& buffer, size_t offset, uint64_t count, double value) {
  std::fill_n(reinterpret_cast<T*>(buffer.data() + offset), count, static_cast<T>(value));
}

}  // namespace

TableSlice::TableSlice(const Slice& slice, const TensorSpec& tensor,
                       const OptimizerSettings& settings, Reduction reduction, BufferPool* values,
                       BufferPool* pool)
    : id_(slice.id()),
      name_(absl::StrCat(tensor.name(), "@", slice.begin(), ":", slice.end())),
      dtype_(tensor.dtype()),
      buffer_(tensor.buffer()),
      average_(reduction.average && IsFloat(tensor.dtype())),
      elements_(slice.end() - slice.begin()),
      settings_(settings),
      state_names_(buffer_ ? std::vector<std::string>() : OptimizerStateNames(settings)),
      state_stride_((elements_ * ElementBytes(dtype_) + kAlignment - 1) / kAlignment * kAlignment),
      value_pool_(values),
      pool_(pool),
      values_(values),
      gradient_(elements_, reduction.apart, pool),
      candidates_(dtype_) {}

absl::Status TableSlice::Start(uint64_t version, const SliceStart& start) {
  const size_t bytes = elements_ * ElementBytes(dtype_);
  if (start.values.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, " has ", bytes, " bytes, but ", start.values.size(), " were given"));
  }
  std::shared_ptr<Buffer> state;
  if (!state_names_.empty()) state = pool_->Take(state_stride_ * state_names_.size());
  for (size_t i = 0; i < state_names_.size(); ++i) {
    const auto given =
        std::find_if(start.state.begin(), start.state.end(),
                     [&](const SliceStart::State& s) { return s.name == state_names_[i]; });
    if (given == start.state.end()) {
      if (!start.state.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("optimizer state ", state_names_[i], " of ", name_,
                         " is missing: was the checkpoint made with another optimizer?"));
      }
      const double value = InitialStateValue(settings_, state_names_[i]);
      if (dtype_ == F64) {
        Fill<double>(*state, i * state_stride_, elements_, value);
      } else {
        Fill<float>(*state, i * state_stride_, elements_, value);
      }
      continue;
    }
    if (given->bytes.size() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer state ", state_names_[i], " of ",
                                                     name_, " has ", given->bytes.size(),
                                                     " bytes; ", bytes, " are right"));
    }
    if (bytes != 0) std::memcpy(state->data() + i * state_stride_, given->bytes.data(), bytes);
  }
  values_.Set(version, start.values);
  state_ = std::move(state);
  // Without its state a step count would mean nothing (the job has another optimizer now).
  const bool anew = !state_names_.empty() && start.state.empty();
  optimizer_steps_ = anew ? 0 : start.optimizer_steps;
  return absl::OkStatus();
}

bool TableSlice::Has(uint32_t contributor, uint32_t part) const {
  return buffer_ ? candidates_.Has(contributor, part) : gradient_.Has(contributor, part);
}

const std::vector<PartIdentity>& TableSlice::identities() const {
  return buffer_ ? candidates_.identities() : gradient_.identities();
}

absl::Status TableSlice::Check(const PartRange& range, const TensorSlice& data) const {
  if (buffer_ ? data.dtype != dtype_ : !IsFloat(data.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a push of ", name_, " cannot be ", std::string(DataTypeName(data.dtype))));
  }
  const uint64_t bytes = (range.end - range.begin) * ElementBytes(data.dtype);
  if (data.bytes.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("part ", range.part, " of contributor ",
                                                   range.contributor, " for ", name_, " has ",
                                                   range.end - range.begin, " elements (", bytes,
                                                   " bytes); ", data.bytes.size(), " bytes came"));
  }
  return absl::OkStatus();
}

absl::Status TableSlice::Add(const PartRange& range, const TensorSlice& data, double scale) {
  absl::Status status = buffer_ ? candidates_.Add(range, data) : gradient_.Add(range, data, scale);
  return status.ok() ? status : InSlice(status);
}

absl::Status TableSlice::Reduce(absl::Span<const uint32_t> contributors, float divisor,
                                SliceNorms& norms, bool& finite) {
  const absl::StatusOr<absl::Span<float>> sum = gradient_.Sum(contributors);
  if (!sum.ok()) return InSlice(sum.status());
  norms.set_slice(id_);
  for (uint64_t begin = 0; begin < elements_; begin += kBlockElements) {
    absl::Span<float> block = sum->subspan(begin, std::min(kBlockElements, elements_ - begin));
    if (!reduced_ && divisor != 1) DivideBy(divisor, block.data(), block);
    norms.add_blocks(SumOfSquares(block));
    finite = AllFinite(block) && finite;
  }
  reduced_ = true;
  return absl::OkStatus();
}

absl::Status TableSlice::InSlice(const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat("slice ", name_, ": ", status.message()));
}

absl::Status TableSlice::Update(const SliceUpdate& update) {
  if (!buffer_) {
    return dtype_ == F64 ? Train<double>(update) : Train<float>(update);
  }
  UpdateBuffer(update);
  return absl::OkStatus();
}

void TableSlice::UpdateBuffer(const SliceUpdate& update) {
  if (!candidates_.HasAnyOf(update.contributors)) return Raise(update.step);
  Buffer& buffer = values_.Update(update.step);
  const absl::Span<std::byte> values(buffer.data(), value_bytes());
  if (average_) {
    candidates_.Average(update.contributors, update.weights, values);
  } else {
    candidates_.TakeFirst(update.contributors, values);
  }
}

template <class T>
absl::Status TableSlice::Train(const SliceUpdate& update) {
  // What is lent is added up here and now, tile by tile, and found to be what was lent before the
  // step counts.
  const bool lent = gradient_.HasLent();
  float scratch[kLentTile];
  absl::Span<float> whole;
  if (!lent) {
    const absl::StatusOr<absl::Span<float>> sum = gradient_.Sum(update.contributors);
    if (!sum.ok()) return InSlice(sum.status());
    whole = *sum;
  }
  const absl::Span<T> parameter = values_.Update(update.step).as<T>();
  std::byte* const state_bytes = state_ == nullptr ? nullptr : Unshare(state_, *pool_).data();
  const uint64_t step_count = ++optimizer_steps_;
  const double rate = settings_.rate * update.rate_factor;
  const uint64_t tile_elements = lent ? kLentTile : kTile;
  for (uint64_t begin = 0; begin < elements_; begin += tile_elements) {
    const uint64_t count = std::min(tile_elements, elements_ - begin);
    const absl::Span<float> tile =
        lent ? absl::Span<float>(scratch, count) : whole.subspan(begin, count);
    absl::Span<const float> sum = tile;
    if (lent) {
      const absl::StatusOr<absl::Span<const float>> added =
          gradient_.SumOf(update.contributors, begin, tile);
      if (!added.ok()) return InSlice(added.status());
      sum = *added;
    }
    const absl::Span<const float> gradient =
        Finish(sum, reduced_ ? 1 : update.divisor, update.clip_scale, tile);
    StateTensor<T> state[4];
    size_t states = 0;
    for (const std::string& name : state_names_) {
      if (states == std::size(state)) return absl::InternalError("too many state tensors");
      T* const values = reinterpret_cast<T*>(state_bytes + states * state_stride_);
      state[states++] = {name, absl::Span<T>(values + begin, count)};
    }
    absl::Status status =
        ApplyUpdate<T>(settings_, rate, step_count, gradient, parameter.subspan(begin, count),
                       absl::Span<const StateTensor<T>>(state, states));
    if (!status.ok()) return status;
  }
  absl::Status stands = gradient_.LentStands(update.contributors);
  return stands.ok() ? stands : InSlice(stands);
}

void TableSlice::Raise(uint64_t step) { values_.Raise(step); }

void TableSlice::Drop() {
  gradient_.Drop();
  candidates_.Drop();
  reduced_ = false;
}

SliceSnapshot TableSlice::Snapshot() const {
  SliceSnapshot snapshot;
  snapshot.slice = id_;
  snapshot.values = values_.PinVersion(values_.newest());
  if (state_ != nullptr) snapshot.state_buffer = Pin(state_);
  for (size_t i = 0; i < state_names_.size(); ++i) {
    snapshot.state.push_back({state_names_[i], i * state_stride_});
  }
  snapshot.optimizer_steps = optimizer_steps_;
  return snapshot;
}

}  // namespace parley
