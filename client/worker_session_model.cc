// The session's verbs before training and between its steps: Register, Initialize, Pull.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/reduce/shared_memory_reducer.h"
#include "client/worker_session.h"
#include "common/tensor.h"
#include "common/utc_text.h"

namespace parley {
namespace {

// So much is on its way to one shard at most.
constexpr int kInitializesPerShard = 4;
constexpr size_t kInitializeBytes = 1 << 20;  // of one call

}  // namespace

absl::Status WorkerSession::Register(std::vector<TensorSpec> tensors, uint64_t training_samples,
                                     uint64_t test_samples) {
  std::vector<TensorSpec> model = tensors;
  return TakeTensors(std::move(tensors), std::move(model), training_samples, test_samples);
}

absl::Status WorkerSession::TakeTensors(std::vector<TensorSpec> tensors,
                                        std::vector<TensorSpec> model, uint64_t training_samples,
                                        uint64_t test_samples) {
  if (registered_) return absl::FailedPreconditionError("Register: done before");
  for (const TensorSpec& tensor : model) {
    if (ByteCount(tensor) != 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name(), "' has no elements or no known type"));
  }
  if (model.empty()) return absl::InvalidArgumentError("the model has no tensors");
  absl::StatusOr<std::unique_ptr<ParameterArena>> parameters = ParameterArena::Make(tensors);
  if (!parameters.ok()) return parameters.status();
  parameters_ = *std::move(parameters);
  registered_ = true;
  tensors_ = std::move(tensors);
  model_ = std::move(model);
  activity_->Work("preparing its first step", 0);
  MemorySource* memory = connector_.memory();
  if (shape().group > 1) {
    if (memory == nullptr) {
      own_memory_ = std::make_unique<SegmentHeap>(0);
      memory = own_memory_.get();
    }
    gradients_.emplace(tensors_, memory);
    reducer_ = std::make_unique<SharedMemoryReducer>(options_.address, tensors_, *gradients_);
    if (options_.reduce_by) reducer_ = options_.reduce_by(std::move(reducer_));
  } else {
    gradients_.emplace(tensors_, memory);
  }

  training_samples_ = training_samples;
  test_samples_ = test_samples;
  absl::Status placed = TakePlace();
  return HasLostTrack(placed) ? BeginAnew() : placed;
}

std::vector<Session::ShownPart> WorkerSession::ShownParts(size_t tensor, size_t begin,
                                                          size_t end) const {
  std::vector<ShownPart> parts;
  for (ParameterArena::ShownPart& part : parameters_->ShownParts(tensor, begin, end)) {
    parts.push_back({part.begin, part.bytes, std::move(part.segment)});
  }
  return parts;
}

bool WorkerSession::must_initialize() const {
  return layout_.has_value() && view().start_from().empty() && !entered_ && !has_pulled_;
}

absl::Status WorkerSession::Initialize(absl::Span<const absl::Span<const std::byte>> values) {
  if (!layout_.has_value())
    return absl::FailedPreconditionError("Initialize: Register comes first");
  if (values.size() != tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("values of ", values.size(), " tensors where ",
                                                   tensors_.size(), " are registered"));
  }
  for (size_t tensor = 0; tensor < values.size(); ++tensor) {
    const TensorSpec& spec = tensors_[tensor];
    if (values[tensor].size() != ByteCount(spec)) {
      return absl::InvalidArgumentError(absl::StrCat("'", spec.name(), "' has ", ByteCount(spec),
                                                     " bytes, its value ", values[tensor].size()));
    }
    const absl::StatusOr<std::byte*> to = parameters_->Own(tensor, 0, values[tensor].size());
    if (!to.ok()) return to.status();
    std::memcpy(*to, values[tensor].data(), values[tensor].size());
  }
  holds_initial_values_ = true;
  absl::Status status = SendInitialValues();
  return HasLostTrack(status) ? BeginAnew() : status;
}

absl::Status WorkerSession::SendInitialValues() {
  if (!holds_initial_values_ || !must_initialize() || ordinal() != 0) return absl::OkStatus();
  auto progress = std::make_shared<InitialValues>();
  progress->next.assign(layout_->by_shard().size(), 0);
  for (uint32_t shard = 0; shard < progress->next.size(); ++shard) {
    for (int call = 0; call < kInitializesPerShard; ++call) InitializeNext(shard, progress);
  }
  const absl::Status waited = Await("initialising the shards",
                                    [&] { return progress->open == 0 || !progress->error.ok(); });
  progress->abandoned = true;
  return waited.ok() ? progress->error : waited;
}

void WorkerSession::InitializeNext(uint32_t shard, const std::shared_ptr<InitialValues>& progress) {
  const std::vector<PlacedSlice>& slices = layout_->by_shard()[shard];
  size_t& next = progress->next[shard];
  if (next == slices.size()) return;
  auto request = std::make_shared<InitializeRequest>();
  for (size_t bytes = 0; next < slices.size() && bytes < kInitializeBytes; ++next) {
    const PlacedSlice& placed = slices[next];
    if (!GivesInitialValues(tensors_[placed.tensor])) continue;
    SliceData& slice = *request->add_slices();
    slice.set_slice(placed.slice);
    slice.set_dtype(tensors_[placed.tensor].dtype());
    slice.set_data(parameters_->tensor(placed.tensor).data() + placed.begin, placed.bytes);
    bytes += placed.bytes;
  }
  if (request->slices().empty()) return;
  ++progress->open;
  calls_->Initialize(shard, std::move(request),
                     [this, shard, progress](const absl::StatusOr<InitializeReply>& reply) {
                       if (progress->abandoned) return;
                       --progress->open;
                       if (progress->error.ok()) progress->error = reply.status();
                       if (reply.ok()) InitializeNext(shard, progress);
                     });
}

absl::Status WorkerSession::PullFully(bool ahead) {
  if (!puller_.has_value()) return absl::FailedPreconditionError("Pull: Register comes first");
  // Where the job goes on without a late worker, values that it has not read may be overwritten.
  // The first time all shards must have initial values before this worker can forget its own.
  ahead = ahead && has_pulled_ && !leases_.has_value() &&
          options_.job.consistency().sync().backup() == 0;
  pulls_ahead_ = ahead;
  const absl::Time started = runtime_->Now();
  for (int rounds = 1;; ++rounds) {
    absl::Status status = PullOnce(ahead);
    if (absl::IsOutOfRange(status)) {
      // The others were faster than the values came.
      if (runtime_->Now() - started >= patience_) {
        return absl::DeadlineExceededError(absl::StrFormat(
            "worker %d has asked %d times since %s where the job is, and each time the others had "
            "passed that version before its values were here: is the network of this worker too "
            "slow? The last time: %s",
            ordinal(), rounds, FormatUtc(started), std::string(status.message())));
      }
      LoseTrack();
      continue;
    }
    if (!HasLostTrack(status)) return status;
    if (absl::Status begun = BeginAnew(); !begun.ok()) return begun;
  }
}

absl::Status WorkerSession::PullOnce(bool ahead) {
  if (absl::Status entered = Enter(); !entered.ok()) return entered;
  const absl::Status pulled = PullValues(WhatToPull(), ahead);
  if (pulled.ok()) {
    holds_initial_values_ = false;  // the shards have theirs
    has_pulled_ = true;
  }
  return pulled;
}

ParameterPuller::Wait WorkerSession::AwaitingPull(const ParameterPuller::What& what) {
  return [this, what](const std::function<bool()>& done) {
    return Await(what.newest ? absl::StrCat("pulling the parameters for clock ", what.clock)
                             : absl::StrCat("pulling version ", what.version),
                 done);
  };
}

absl::Status WorkerSession::AwaitValues(const ParameterPuller::What& what,
                                        std::optional<ParameterPuller::Some> some) {
  const absl::Time started = runtime_->Now();
  while (true) {
    absl::Status status = puller_->Await(some, AwaitingPull(what));
    // A call is repeated where its shard is unavailable: so this is of values that the shard has
    // written again before they were copied.
    if (!absl::IsUnavailable(status) || runtime_->Now() - started >= patience_) return status;
    puller_->Begin(what);
  }
}

absl::Status WorkerSession::PullValues(const ParameterPuller::What& what, bool ahead) {
  pull_error_ = absl::OkStatus();
  is_void_ = false;
  // Nothing to bring; but the job may have failed.
  if (!what.newest && held_ == what.version) return Await("pulling", [] { return true; });
  const absl::Time started = runtime_->Now();
  if (what.newest || ahead_ != what.version) puller_->Begin(what);
  held_.reset();
  ahead_.reset();
  absl::Status pulled;
  if (ahead) {
    for (size_t i = 0; i < tensors_.size() && pulled.ok(); ++i) {
      if (!tensors_[i].buffer()) continue;
      pulled = AwaitValues(what, ParameterPuller::Some{i});
      // Nobody awaits it after this: what is written there next is not to be taken back with what
      // comes last.
      if (pulled.ok()) TakeBack(i);
    }
  } else {
    pulled = AwaitValues(what, std::nullopt);
  }
  if (pulled.ok()) {
    if (ahead) {
      ahead_ = what.version;
    } else {
      // Of an older version, for an evaluation, nothing follows.
      if (what.newest || what.version >= version()) TakeBack(std::nullopt);
      if (!what.newest) held_ = what.version;
    }
    Progress();
    activity_->Work("its own work between two steps (evaluation, say)", version());
  }
  absl::MutexLock lock(&traffic_mu_);
  traffic_.pulled_bytes += puller_->TakePulledBytes();
  traffic_.pull_seconds += absl::ToDoubleSeconds(runtime_->Now() - started);
  return pulled;
}

void WorkerSession::TakeBack(std::optional<size_t> tensor) {
  const auto take = [this](size_t i) {
    if (is_read_[i]) gradients_->Recall(i);
    is_read_[i] = false;
  };
  if (is_read_.empty()) return;
  if (tensor.has_value()) return take(*tensor);
  for (size_t i = 0; i < is_read_.size(); ++i) take(i);
}

absl::Status WorkerSession::AwaitPulled(std::optional<ParameterPuller::Some> some) {
  if (some.has_value() && some->tensor >= tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", some->tensor));
  }
  if (!ahead_.has_value()) return pull_error_;
  const absl::Time started = runtime_->Now();
  ParameterPuller::What what = WhatToPull();
  what.version = *ahead_;
  const absl::Status pulled = AwaitValues(what, some);
  if (!pulled.ok()) {
    ahead_.reset();
    pull_error_ = pulled;
    is_void_ = true;
    // What it computes all the same it writes there.
    if (IsRead()) {
      if (exchange_ != nullptr) exchange_->Abandon();
      LeaveGradients();
    }
  } else if (!puller_->pulling()) {
    held_ = std::exchange(ahead_, std::nullopt);
    TakeBack(std::nullopt);
  } else if (some.has_value() && puller_->IsHere(some->tensor)) {
    TakeBack(some->tensor);
  }
  absl::MutexLock lock(&traffic_mu_);
  traffic_.pulled_bytes += puller_->TakePulledBytes();
  traffic_.pull_seconds += absl::ToDoubleSeconds(runtime_->Now() - started);
  return pulled;
}

}  // namespace parley
