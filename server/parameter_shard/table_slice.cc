#include "server/parameter_shard/table_slice.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/nonzero_blocks.h"
#include "common/tensor.h"
#include "server/parameter_shard/gradient_norm.h"
#include "server/parameter_shard/optimizers.h"
#include "server/parameter_shard/sum_kernels.h"

namespace parley {
namespace {

// Elements that are divided, clipped and applied while they are in the cache.
constexpr uint64_t kTile = 8192;
// The same where they are added up first, into memory that stays in the nearest cache.
constexpr uint64_t kLentTile = 2048;

template <class T>
void Fill(Buffer& buffer, size_t offset, uint64_t count, double value) {
  std::fill_n(reinterpret_cast<T*>(buffer.data() + offset), count, static_cast<T>(value));
}

}  // namespace

TableSlice::TableSlice(const Slice& slice, const TensorSpec& tensor,
                       const OptimizerSettings& settings, Reduction reduction, BufferPool* values,
                       BufferPool* pool)
    : id_(slice.id()),
      buffer_(tensor.buffer()),
      average_(reduction.average && IsFloat(tensor.dtype())),
      sparse_(reduction.sparse),
      training_(std::make_shared<SliceTraining>(
          absl::StrCat(tensor.name(), "@", slice.begin(), ":", slice.end()), tensor,
          slice.end() - slice.begin(), settings)),
      value_pool_(values),
      pool_(pool),
      values_(values),
      gradient_(elements(), reduction.apart, pool),
      candidates_(tensor.dtype()) {}

absl::Status TableSlice::Start(uint64_t version, const SliceStart& start) {
  const size_t bytes = value_bytes();
  const std::vector<std::string>& state_names = training_->state_names();
  const size_t stride = training_->state_stride();
  if (start.values.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name(), " has ", bytes, " bytes, but ", start.values.size(), " were given"));
  }
  std::shared_ptr<Buffer> state;
  if (!state_names.empty()) state = pool_->Take(training_->state_bytes());
  for (size_t i = 0; i < state_names.size(); ++i) {
    const auto given =
        std::find_if(start.state.begin(), start.state.end(),
                     [&](const SliceStart::State& s) { return s.name == state_names[i]; });
    if (given == start.state.end()) {
      if (!start.state.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("optimizer state ", state_names[i], " of ", name(),
                         " is missing: was the checkpoint made with another optimizer?"));
      }
      const double value = InitialStateValue(training_->settings(), state_names[i]);
      if (training_->dtype() == F64) {
        Fill<double>(*state, i * stride, elements(), value);
      } else {
        Fill<float>(*state, i * stride, elements(), value);
      }
      continue;
    }
    if (given->bytes.size() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer state ", state_names[i], " of ",
                                                     name(), " has ", given->bytes.size(),
                                                     " bytes; ", bytes, " are right"));
    }
    if (bytes != 0) std::memcpy(state->data() + i * stride, given->bytes.data(), bytes);
  }
  values_.Set(version, start.values);
  state_ = std::move(state);
  // Without its state a step count would mean nothing (the job has another optimizer now).
  const bool anew = !state_names.empty() && start.state.empty();
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
  if (buffer_ ? data.dtype != training_->dtype() : !IsFloat(data.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a push of ", name(), " cannot be ", std::string(DataTypeName(data.dtype))));
  }
  uint64_t elements = range.end - range.begin;
  if (data.packed || !data.nonzero.empty()) {
    const std::optional<uint64_t> there = NonzeroElements(data.nonzero, elements);
    if (buffer_ || !there.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", range.part, " of contributor ", range.contributor, " for ", name(),
                       " has ", elements, " elements; which of them are zeros is said of others"));
    }
    if (data.packed) elements = *there;
  }
  const uint64_t bytes = elements * ElementBytes(data.dtype);
  if (data.bytes.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "part ", range.part, " of contributor ", range.contributor, " for ", name(), " has ",
        elements, data.packed ? " elements that are not left out (" : " elements (", bytes,
        " bytes); ", data.bytes.size(), " bytes came"));
  }
  return absl::OkStatus();
}

absl::Status TableSlice::Add(const PartRange& range, const TensorSlice& data, double scale) {
  if (ahead_ != nullptr) DropAhead();  // not all that was to come had come
  absl::Status status = buffer_ ? candidates_.Add(range, data) : gradient_.Add(range, data, scale);
  return status.ok() ? status : training_->In(status);
}

absl::Status TableSlice::Reduce(absl::Span<const uint32_t> contributors, float divisor,
                                SliceNorms& norms, bool& finite) {
  DropAhead();
  const absl::StatusOr<absl::Span<float>> sum = gradient_.Sum(contributors);
  if (!sum.ok()) return training_->In(sum.status());
  norms.set_slice(id_);
  for (uint64_t begin = 0; begin < elements(); begin += kBlockElements) {
    absl::Span<float> block = sum->subspan(begin, std::min(kBlockElements, elements() - begin));
    if (!reduced_ && divisor != 1) DivideBy(divisor, block.data(), block);
    norms.add_blocks(SumOfSquares(block));
    finite = AllFinite(block) && finite;
  }
  reduced_ = true;
  return absl::OkStatus();
}

absl::Status TableSlice::Update(const SliceUpdate& update) {
  if (!buffer_) {
    if (TakeAhead(update)) return absl::OkStatus();
    return training_->dtype() == F64 ? Train<double>(update) : Train<float>(update);
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
  if (absl::Status status = Settle(); !status.ok()) return status;
  // What is lent is added up here and now, tile by tile, and found to be what was lent before the
  // step counts.
  const bool lent = gradient_.HasLent();
  float scratch[kLentTile];
  absl::Span<float> whole;
  if (!lent) {
    const absl::StatusOr<absl::Span<float>> sum = gradient_.Sum(update.contributors);
    if (!sum.ok()) return training_->In(sum.status());
    whole = *sum;
  }
  const absl::Span<T> parameter = values_.Update(update.step).as<T>();
  std::byte* const state_bytes = state_ == nullptr ? nullptr : Unshare(state_, *pool_).data();
  ++optimizer_steps_;
  SliceUpdate step = update;
  if (reduced_) step.divisor = 1;
  MostlyZero zeros(elements());
  const size_t states = training_->state_names().size();
  const uint64_t tile_elements = lent ? kLentTile : kTile;
  for (uint64_t begin = 0; begin < elements(); begin += tile_elements) {
    const uint64_t count = std::min(tile_elements, elements() - begin);
    const absl::Span<float> tile =
        lent ? absl::Span<float>(scratch, count) : whole.subspan(begin, count);
    absl::Span<const float> sum = tile;
    if (lent) {
      const absl::StatusOr<absl::Span<const float>> added =
          gradient_.SumOf(update.contributors, begin, tile);
      if (!added.ok()) return training_->In(added.status());
      sum = *added;
    }
    if (sparse_ && !zeros.IsRefuted()) zeros.Count(sum);
    absl::InlinedVector<FromTo<T>, SliceTraining::kMostStates> state;
    for (size_t i = 0; i < states; ++i) {
      T* const values = reinterpret_cast<T*>(state_bytes + i * training_->state_stride());
      state.emplace_back(absl::Span<T>(values + begin, count));
    }
    absl::Status status =
        training_->Apply<T>(step, optimizer_steps_, sum, tile, parameter.subspan(begin, count),
                            absl::MakeConstSpan(state));
    if (!status.ok()) return status;
  }
  mostly_zero_ = zeros.holds();
  absl::Status stands = gradient_.LentStands(update.contributors);
  return stands.ok() ? stands : training_->In(stands);
}

void TableSlice::Raise(uint64_t step) { values_.Raise(step); }

TableSlice::Ahead TableSlice::Drop() {
  DropAhead();
  gradient_.Drop();
  candidates_.Drop();
  reduced_ = false;
  return std::exchange(became_of_ahead_, Ahead::kNone);
}

SliceSnapshot TableSlice::Snapshot() const {
  SliceSnapshot snapshot;
  snapshot.slice = id_;
  snapshot.values = values_.PinVersion(values_.newest());
  if (state_ != nullptr) snapshot.state_buffer = Pin(state_);
  for (size_t i = 0; i < training_->state_names().size(); ++i) {
    snapshot.state.push_back({training_->state_names()[i], i * training_->state_stride()});
  }
  snapshot.optimizer_steps = optimizer_steps_;
  return snapshot;
}

}  // namespace parley
