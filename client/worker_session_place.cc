// The session's place in the job: taken after Join, and again when the job has gone on without it
// or has gone back to a checkpoint.
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/contribution.h"
#include "client/worker_session.h"
#include "common/job/consistency.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

absl::Status CameTooLate() {
  return absl::FailedPreconditionError("the job is FINISHED: this worker came too late");
}

}  // namespace

bool WorkerSession::JobWentBack() const {
  // A job that has finished is over for one that has missed how, too.
  return calls_ != nullptr && calls_->job_epoch() != 0 && watched().phase() != FINISHED &&
         view().job_epoch() > calls_->job_epoch();
}

absl::Status WorkerSession::WentBack() const {
  return absl::AbortedError(
      absl::StrCat("the job has gone back to version ", view().start_version()));
}

absl::Duration WorkerSession::TimeToHear() const { return 2 * liveness_ + Autonomy(options_.job); }

bool WorkerSession::HasLostTrack(absl::Status& error) {
  if (error.ok()) return false;
  const auto is_told = [this] { return *is_expelled_ || JobWentBack() || CompositionChanged(); };
  if (!is_told() && watched().phase() != FINISHED &&
      (absl::IsAborted(error) || absl::IsFailedPrecondition(error))) {
    // A shard can know it before this process does. What counts comes from the coordinator: the
    // job's failure, that this incarnation is none of its members, a view of a later job_epoch, or
    // one with another composition of the pipeline or node group; or it is lost.
    const absl::Duration most = TimeToHear();
    const absl::Status waited = queue_->RunUntil(
        is_told, runtime_->Now() + most, [this, since = runtime_->Now()] { Waits(since); },
        liveness_ / 4);
    if (absl::IsDeadlineExceeded(waited) && absl::IsAborted(error)) {
      error =
          absl::AbortedError(absl::StrCat(error.message(), "; the coordinator has not said within ",
                                          absl::FormatDuration(most), " where the job is"));
    }
  }
  if (*is_expelled_) return true;
  const std::optional<FirstCause> failed = membership()->failure();
  if (failed.has_value()) {
    error = absl::AbortedError(failed->text());
    return false;
  }
  return JobWentBack() || CompositionChanged();
}

absl::Status WorkerSession::BeginAnew() {
  while (true) {
    if (watched().drained()) return DepartInstead();
    const bool as_another = *is_expelled_;
    if (as_another) {
      // It was told to end meanwhile: nobody waits for it any more.
      if (const auto end = OwnEnd(); end.has_value()) return absl::AbortedError(end->text());
    }
    const Activity::Waiting waiting(
        *activity_,
        as_another ? "joining the job anew, which went on without it"
        : JobWentBack()
            ? absl::StrCat("going back to version ", view().start_version(), " with the job")
            : "beginning anew with its pipeline or node group, which has lost a process",
        runtime_->Now() + patience_);
    DropCalls();
    absl::Status status;
    if (as_another) {
      // Nothing of the old membership happens any more when it goes.
      queue_->End(absl::CancelledError("the worker joins anew"));
      if (status = JoinJob(); !status.ok()) return status;
      status = TakePlace();
    } else {
      MakeCalls();
      status = FollowView();
    }
    if (!HasLostTrack(status)) return status;
  }
}

absl::Status WorkerSession::TakePlace() {
  const absl::Status status = RegisterModel();
  return status.ok() ? FollowView() : status;
}

absl::Status WorkerSession::FollowView() {
  absl::Status status = Await("waiting for all members to join", [this] {
    return (HasPlace() && IsWhole()) || watched().phase() == FINISHED || watched().drained();
  });
  if (!status.ok()) return status;
  if (watched().drained()) return DepartInstead();
  if (!HasPlace()) return CameTooLate();
  {
    absl::MutexLock lock(&membership_mu_);
    is_apart_ = false;
  }
  status = AdoptView();
  if (status.ok()) reports_.SendAgain(*calls_, member_ordinal());
  // It may have come back to the place of one that was lost before it gave them.
  return status.ok() ? SendInitialValues() : status;
}

bool WorkerSession::HasPlace() const {
  if (!watched().has_view()) return false;
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
  request->mutable_tensors()->Assign(model_.begin(), model_.end());
  request->set_training_samples(training_samples_);
  request->set_test_samples(test_samples_);
  auto answer = std::make_shared<std::optional<absl::Status>>();
  calls_->RegisterModel(std::move(request), [answer](const absl::StatusOr<RegisterModelReply>& r) {
    *answer = r.status();
  });
  // A job that is over refuses it, which to the call looks like a view that is about to come.
  const absl::Status waited = Await("registering the model", [&] {
    return answer->has_value() || watched().phase() == FINISHED;
  });
  if (!waited.ok()) return waited;
  return answer->has_value() ? **answer : CameTooLate();
}

absl::Status WorkerSession::AdoptView() {
  const std::shared_ptr<Membership> member = membership();
  absl::StatusOr<SliceLayout> layout =
      SliceLayout::Make(view(), tensors_, ordinal(), member->member());
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);
  if (view().step_leader() >= layout_->shard_addresses().size() ||
      layout_->shard_addresses()[view().step_leader()].empty()) {
    return absl::InternalError("the view's step leader is no member");
  }
  calls_->Connect(layout_->shard_addresses(), view().job_epoch());
  pipeline_ = ViewedPipeline();
  if (std::exchange(job_epoch_, view().job_epoch()) != view().job_epoch()) ForgetEvaluations();
  data_.emplace(options_.job, view(), ordinal(), shape().group > 1 ? layout_->part() : 0);
  puller_.emplace(tensors_, *layout_, *parameters_, *calls_, runtime_->Loops(),
                  BucketBytes(options_.job));
  puller_->ShareThrough(reducer_.get());
  StepExchange::Options exchange;
  exchange.window.contributor = ordinal();
  exchange.window.composition = pipeline_.composition;
  exchange.step_leader = view().step_leader();
  exchange.window.group_bytes = BucketBytes(options_.job);
  exchange.window.window_bytes = options_.push_window_bytes;
  exchange.window.narrow = OnWire(options_.job);
  exchange.sum = SumsContributions(options_.job);
  exchange.reducer = reducer_.get();
  exchange.wake = [queue = queue_] { queue->Post([] {}); };
  exchange_ = std::make_unique<StepExchange>(exchange, tensors_, *layout_, *gradients_, *calls_);
  AdoptClocks();
  return FormGroup();
}

void WorkerSession::ForgetEvaluations() {
  const uint64_t version = view().start_version();
  reports_.RollBack(version);
  if (evaluation_.has_value() && evaluation_->version() > version) evaluation_.reset();
  if (evaluated_.version > version) evaluated_ = EvaluatedPart();
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
    Progress();
    return absl::OkStatus();
  }
  data_->Reset(here.step() - 1, std::move(*here.mutable_position()),
               {here.contributors().begin(), here.contributors().end()});
  if (here.has_evaluation()) evaluation_ = std::move(*here.mutable_evaluation());
  Progress();
  activity_->Decided(data_->version());
  return absl::OkStatus();
}

}  // namespace parley
