// The session's place in the job: taken after Join, and again when the job has gone on without it.
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/worker_session.h"
#include "common/job/consistency.h"
#include "common/job/job_file.h"

namespace parley {

bool WorkerSession::IsExpelled(const absl::Status& error) {
  if (error.ok()) return false;
  if (!*is_expelled_ && (absl::IsAborted(error) || absl::IsFailedPrecondition(error))) {
    // A shard can know it before this process does. What counts comes from the coordinator: the
    // job's failure, or that this incarnation is none of its members; or it is lost.
    (void)queue_->RunUntil([] { return false; },
                           runtime_->Now() + 2 * liveness_ + Autonomy(options_.job), [] {},
                           liveness_);
  }
  return *is_expelled_;
}

absl::Status WorkerSession::JoinAnew() {
  const Activity::Waiting waiting(*activity_, "joining the job anew, which went on without it",
                                  runtime_->Now() + patience_);
  while (true) {
    // Nothing of the old membership happens any more when it goes.
    timers_->Stop();
    queue_->End(absl::CancelledError("the worker joins anew"));
    exchange_.reset();
    clock_exchange_.reset();
    puller_.reset();
    calls_.reset();
    activity_->ForgetCalls();
    held_.reset();
    LoseTrack();
    absl::Status status = JoinJob();
    if (!status.ok()) return status;
    status = TakePlace();
    if (!IsExpelled(status)) return status;
  }
}

absl::Status WorkerSession::TakePlace() {
  absl::Status status = RegisterModel();
  if (!status.ok()) return status;
  status = Await("waiting for all members to join",
                 [this] { return HasPlace() || watched_->phase() == FINISHED; });
  if (!status.ok()) return status;
  if (!HasPlace()) {
    return absl::FailedPreconditionError("the job is FINISHED: this worker came too late");
  }
  status = AdoptView();
  if (status.ok()) reports_.SendAgain(*calls_, ordinal());
  // It may have come back to the place of one that was lost before it gave them.
  return status.ok() ? SendInitialValues() : status;
}

bool WorkerSession::HasPlace() const {
  if (!watched_->has_view()) return false;
  const std::shared_ptr<Membership> member = membership();
  for (const Contributor& contributor : view().contributors()) {
    for (const uint64_t sender : contributor.part_members()) {
      if (sender == member->member()) return true;
    }
  }
  return false;
}

absl::Status WorkerSession::RegisterModel() {
  auto request = std::make_shared<RegisterModelRequest>();
  request->mutable_tensors()->Assign(tensors_.begin(), tensors_.end());
  request->set_training_samples(training_samples_);
  request->set_test_samples(test_samples_);
  auto answer = std::make_shared<std::optional<absl::Status>>();
  calls_->RegisterModel(std::move(request), [answer](const absl::StatusOr<RegisterModelReply>& r) {
    *answer = r.status();
  });
  // Once the job has finished the refusal looks like that of an old view, and is tried again for
  // long: TakePlace says what it is.
  const absl::Status waited = Await("registering the model", [&] {
    return answer->has_value() || watched_->phase() == FINISHED;
  });
  return waited.ok() && answer->has_value() ? **answer : waited;
}

absl::Status WorkerSession::AdoptView() {
  const std::shared_ptr<Membership> member = membership();
  absl::StatusOr<SliceLayout> layout =
      SliceLayout::Make(view(), tensors_, member->ordinal(), member->member());
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);
  if (view().step_leader() >= layout_->shard_addresses().size() ||
      layout_->shard_addresses()[view().step_leader()].empty()) {
    return absl::InternalError("the view's step leader is no member");
  }
  calls_->Connect(layout_->shard_addresses());
  data_.emplace(options_.job, view(), member->ordinal());
  puller_.emplace(tensors_, *layout_, *parameters_, *calls_);
  StepExchange::Options exchange;
  exchange.contributor = member->ordinal();
  exchange.step_leader = view().step_leader();
  exchange.window_bytes = options_.push_window_bytes;
  exchange.sum = SumsContributions(options_.job);
  exchange_ = std::make_unique<StepExchange>(exchange, tensors_, *layout_, *gradients_, *calls_);
  AdoptClocks();
  return absl::OkStatus();
}

void WorkerSession::LoseTrack() {
  plan_.reset();
  entered_ = false;
}

absl::Status WorkerSession::Enter() {
  if (entered_) return absl::OkStatus();
  auto request = std::make_shared<EnterRequest>();
  request->set_contributor(ordinal());
  auto answer = std::make_shared<std::optional<absl::StatusOr<EnterReply>>>();
  calls_->Enter(view().step_leader(), std::move(request),
                [answer](absl::StatusOr<EnterReply> reply) { answer->emplace(std::move(reply)); });
  const absl::Status waited =
      Await("asking the step leader where the job is", [&] { return answer->has_value(); });
  if (!waited.ok()) return waited;
  if (!(*answer)->ok()) return (*answer)->status();
  EnterReply& here = ***answer;
  if (here.step() == 0) return absl::InternalError("the step leader says that step 0 is open");
  entered_ = true;
  attempt_ = here.attempt();
  if (leases_.has_value()) {
    if (!here.has_lease()) {
      return absl::InternalError("the step leader does not say what there is to do");
    }
    FollowLease(here.step() - 1, here.lease());
    membership()->Progress(version());
    return absl::OkStatus();
  }
  data_->Reset(here.step() - 1, std::move(*here.mutable_position()),
               {here.contributors().begin(), here.contributors().end()});
  if (here.has_evaluation()) evaluation_ = std::move(*here.mutable_evaluation());
  membership()->Progress(data_->version());
  activity_->Decided(data_->version());
  return absl::OkStatus();
}

}  // namespace parley
