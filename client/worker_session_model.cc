// The session's verbs before training and between its steps: Register, Initialize, Pull.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/push_groups.h"
#include "client/worker_session.h"
#include "common/tensor.h"

namespace parley {

absl::Status WorkerSession::Register(std::vector<TensorSpec> tensors, uint64_t training_samples,
                                     uint64_t test_samples) {
  if (!tensors_.empty()) return absl::FailedPreconditionError("Register: done before");
  for (const TensorSpec& tensor : tensors) {
    if (ByteCount(tensor) != 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name(), "' has no elements or no known type"));
  }
  if (tensors.empty()) return absl::InvalidArgumentError("the model has no tensors");
  tensors_ = std::move(tensors);
  parameters_.emplace(tensors_);
  gradients_.emplace(tensors_);

  auto request = std::make_shared<RegisterModelRequest>();
  request->mutable_tensors()->Assign(tensors_.begin(), tensors_.end());
  request->set_training_samples(training_samples);
  request->set_test_samples(test_samples);
  auto answer = std::make_shared<std::optional<absl::Status>>();
  calls_->RegisterModel(std::move(request), [answer](const absl::StatusOr<RegisterModelReply>& r) {
    *answer = r.status();
  });
  absl::Status status = Await("registering the model", [&] { return answer->has_value(); });
  if (status.ok()) status = **answer;
  if (status.ok()) {
    status = Await("waiting for all members to join", [this] { return watched_->has_view(); });
  }
  return status.ok() ? AdoptView() : status;
}

absl::Status WorkerSession::AdoptView() {
  absl::StatusOr<SliceLayout> layout =
      SliceLayout::Make(view(), tensors_, membership_->ordinal(), membership_->member());
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);
  if (view().step_leader() >= layout_->shard_addresses().size() ||
      layout_->shard_addresses()[view().step_leader()].empty()) {
    return absl::InternalError("the view's step leader is no member");
  }
  calls_->Connect(layout_->shard_addresses());
  data_.emplace(options_.job, view(), membership_->ordinal());
  puller_.emplace(tensors_, *layout_, *parameters_, *calls_);
  StepExchange::Options exchange;
  exchange.contributor = membership_->ordinal();
  exchange.step_leader = view().step_leader();
  exchange.sum = options_.job.consistency().sync().reduction() == SUM;
  exchange_ = std::make_unique<StepExchange>(exchange, tensors_, *layout_, *gradients_, *calls_);
  membership_->Progress(data_->version());
  return absl::OkStatus();
}

bool WorkerSession::must_initialize() const {
  return watched_->has_view() && view().start_from().empty() && membership_->ordinal() == 0;
}

absl::Status WorkerSession::Initialize(absl::Span<const absl::Span<const std::byte>> values) {
  if (!layout_.has_value())
    return absl::FailedPreconditionError("Initialize: Register comes first");
  if (values.size() != tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("values of ", values.size(), " tensors where ",
                                                   tensors_.size(), " are registered"));
  }
  PushGroups groups(4 << 20);
  std::vector<SliceGroup> full;
  for (const auto& slices : layout_->by_shard()) {
    for (const PlacedSlice& placed : slices) {
      const absl::Span<const std::byte> value = values[placed.tensor];
      const TensorSpec& spec = tensors_[placed.tensor];
      if (value.size() != ByteCount(spec)) {
        return absl::InvalidArgumentError(absl::StrCat("'", spec.name(), "' has ", ByteCount(spec),
                                                       " bytes, its value ", value.size()));
      }
      SliceData slice;
      slice.set_slice(placed.slice);
      slice.set_dtype(spec.dtype());
      slice.set_data(value.data() + placed.begin, placed.bytes);
      groups.Add(placed.shard, std::move(slice), full);
    }
  }
  for (SliceGroup& rest : groups.TakeAll()) full.push_back(std::move(rest));
  struct Progress {
    size_t open;
    absl::Status error;
  };
  auto progress = std::make_shared<Progress>(Progress{full.size(), absl::OkStatus()});
  for (SliceGroup& group : full) {
    auto request = std::make_shared<InitializeRequest>();
    for (SliceData& slice : group.slices) *request->add_slices() = std::move(slice);
    calls_->Initialize(group.shard, std::move(request),
                       [progress](const absl::StatusOr<InitializeReply>& reply) {
                         --progress->open;
                         if (progress->error.ok()) progress->error = reply.status();
                       });
  }
  const absl::Status waited = Await("initialising the shards",
                                    [&] { return progress->open == 0 || !progress->error.ok(); });
  return waited.ok() ? progress->error : waited;
}

absl::Status WorkerSession::Pull() {
  if (!puller_.has_value()) return absl::FailedPreconditionError("Pull: Register comes first");
  const absl::Time started = absl::Now();
  const uint64_t version = data_->version();
  const absl::Status pulled = puller_->Pull(version, [&](const std::function<bool()>& done) {
    return Await(absl::StrCat("pulling version ", version), done);
  });
  if (pulled.ok()) membership_->Progress(version);
  absl::MutexLock lock(&traffic_mu_);
  traffic_.pulled_bytes = puller_->pulled_bytes();
  traffic_.pull_seconds += absl::ToDoubleSeconds(absl::Now() - started);
  return pulled;
}

}  // namespace parley
