// The calls of members, one method each.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/job/optimizer_settings.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {

absl::StatusOr<JoinReply> CoordinatorCore::Join(const JoinRequest& request, absl::Time now,
                                                Replies& replies) {
  if (generation_ == 0) return absl::UnavailableError("the coordinator is starting; try again");
  if (absl::Status status = members_.Check(request); !status.ok()) return status;
  if (life_.ended() && !members_.Knows(request.header().incarnation())) {
    // It has been started for the next run, and this coordinator is about to go.
    if (cause_ && cause_->preempted() && !stopped_ && !request.again()) {
      return absl::UnavailableError(
          absl::StrCat("another coordinator is to come: ", InPhase({}).message()));
    }
    return InPhase({});
  }
  auto joined = members_.Join(request, now);
  if (!joined.ok()) return joined.status();
  if (!joined->repeated) {
    Change();
    if (life_.phase() == GATHERING) CountGathered(now);
  }
  if (joined->replaced != nullptr) {
    const Caller& old = *joined->replaced;
    const std::string why = old.why_fenced;
    watchers_.Refuse(old.member.id(), absl::AbortedError("fenced: a newer process has its address"),
                     replies);
    if (life_.phase() == GATHERING) {
      SeeOff(old);
      models_.Forget(old.member.id());
    } else if (old.member.role() == SHARD) {
      LoseShard(old, ReportedBy(old.member, why, /*preempted=*/false, progress_.step()), now,
                replies);
    } else {
      // It need not wait for the end of the lease.
      LoseContributing(old, ReportedBy(old.member, why, /*preempted=*/false, progress_.step()), now,
                       replies);
    }
    if (life_.ended()) {
      TellWatchers(replies);
      return InPhase({});
    }
  }
  // The last shard may come after all others have registered.
  MakeViewIfAllAreHere(now);
  GoBackIfShardsAreThere(now);
  if (!joined->repeated) ForgetThoseLongGone();
  TellWatchers(replies);
  JoinReply reply;
  reply.set_member(joined->entry->member.id());
  reply.set_ordinal(joined->entry->member.ordinal());
  reply.set_generation(generation_);
  return reply;
}

void CoordinatorCore::ForgetThoseLongGone() {
  std::set<uint64_t> but = {models_.first()};  // messages name it
  for (const Member& member : view_.members()) but.insert(member.id());
  for (const auto& [place, vacancy] : vacancies_) but.insert(vacancy.lost.id());
  for (const auto& [ordinal, vacancy] : lost_shards_) but.insert(vacancy.lost.id());
  for (const uint64_t id : members_.ForgetGone(but)) models_.Forget(id);
}

absl::StatusOr<HeartbeatReply> CoordinatorCore::Heartbeat(const HeartbeatRequest& request,
                                                          absl::Time now, Replies&) {
  auto caller = Admit(request.header(), Scope::kCaller, now);
  if (!caller.ok()) return caller.status();
  HeartbeatRequest current = request;
  // Of a version that the job has gone back before it says nothing.
  if (request.header().job_epoch() < job_epoch_) current.clear_step();
  members_.Heartbeat(**caller, current, now);
  HeartbeatReply reply;
  reply.set_generation(generation_);
  reply.set_revision(revision_);
  return reply;
}

void CoordinatorCore::Watch(const WatchRequest& request, CallTime time, Replies& replies,
                            Done<SharedJobState> done) {
  auto caller = Admit(request.header(), Scope::kCaller, time.now);
  if (!caller.ok()) {
    replies.Add<SharedJobState>(std::move(done), caller.status());
  } else if (request.seen_revision() != revision_ || time.deadline <= time.now || closed_) {
    replies.Add<SharedJobState>(std::move(done), (*caller)->drained ? ToGo(*State()) : State());
  } else {
    watchers_.Park((*caller)->member.id(), request.seen_revision(), time.deadline, std::move(done),
                   replies);
  }
}

absl::StatusOr<RegisterModelReply> CoordinatorCore::RegisterModel(
    const RegisterModelRequest& request, absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kCaller, {WORKER, STAGE}, now);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = InPhase({GATHERING, PREPARING, TRAINING, SAVING}); !status.ok()) {
    return status;
  }
  if (options_.start) {
    if (absl::Status status = CheckStart(*options_.start, request); !status.ok()) return status;
  }
  if (absl::Status status =
          CheckOverrides(options_.job, {request.tensors().begin(), request.tensors().end()});
      !status.ok()) {
    return status;
  }
  const Member& member = (*caller)->member;
  // It is about to hear that it is to go.
  if ((*caller)->drained && !TakesPart(view_, member.id())) return RegisterModelReply();
  const bool is_new = !models_.registered(member.id());
  if (absl::Status status = models_.Register(member, request); !status.ok()) return status;
  if (is_new) Change();
  if (life_.phase() == GATHERING) {
    CountGathered(now);
    MakeViewIfAllAreHere(now);
  } else {
    TakeIn(**caller, now);
  }
  TellWatchers(replies);
  return RegisterModelReply();
}

absl::StatusOr<ReportReadyReply> CoordinatorCore::ReportReady(const ReportReadyRequest& request,
                                                              absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, {SHARD}, now);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = InPhase({PREPARING, TRAINING, SAVING}); !status.ok()) return status;
  if (request.version() != view_.start_version()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe((*caller)->member), " is ready with version ", request.version(),
                     ", the job starts from version ", view_.start_version()));
  }
  if (!request.damage().empty()) {
    FindPrevious(
        ReportedBy((*caller)->member, request.damage(), /*preempted=*/false, progress_.step()),
        now);
    TellWatchers(replies);
    return ReportReadyReply();
  }
  if (!ready_shards_[(*caller)->member.ordinal()]) {
    ready_shards_[(*caller)->member.ordinal()] = true;
    last_event_ = now;
    Change();
  }
  TrainIfShardsAreReady(now);
  TellWatchers(replies);
  return ReportReadyReply();
}

void CoordinatorCore::FollowClocks(const Verdict& verdict) {
  if (!IsClocked(options_.job)) return;
  for (const Share& share : verdict.shares()) {
    // Who has its place by now, if that is another one, pulls later still.
    const Caller* const worker = members_.Holder(WORKER, share.contributor());
    if (worker != nullptr) members_.RaiseParameters(worker->member.id(), verdict.step());
  }
}

void CoordinatorCore::CountAsProgress(const Verdict& verdict, absl::Time now) {
  for (const Share& share : verdict.shares()) {
    for (uint32_t part = 0; part < shape().parts(); ++part) {
      const auto [role, ordinal] = MemberPlaceOf({share.contributor(), part}, shape());
      if (const Caller* const member = members_.Holder(role, ordinal); member != nullptr) {
        members_.Contributed(member->member.id(), now);
      }
    }
  }
}

absl::StatusOr<ReportVerdictsReply> CoordinatorCore::ReportVerdicts(
    const ReportVerdictsRequest& request, absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, {SHARD}, now);
  if (!caller.ok()) return caller.status();
  // PREPARING too: the last shard's ReportReady may still be under way when a first step is
  // decided.
  if (absl::Status status = InPhase({PREPARING, TRAINING, SAVING}); !status.ok()) return status;
  if ((*caller)->member.ordinal() != view_.step_leader()) {
    return absl::InvalidArgumentError(absl::StrCat(Describe((*caller)->member),
                                                   " reports verdicts, but shard ",
                                                   view_.step_leader(), " decides steps"));
  }
  const auto add = [&](const Verdict& verdict) {
    if (life_.phase() == SAVING && verdict.step() > progress_.step()) {
      return absl::InvalidArgumentError(absl::StrCat("verdict of step ", verdict.step(),
                                                     " after all workers finished with step ",
                                                     progress_.step()));
    }
    return progress_.Add(verdict, now);
  };
  const uint64_t decided = progress_.step();
  absl::Status status;
  if (request.has_progress() && life_.phase() != SAVING &&
      progress_.IsBehind(request.progress(), request.verdicts())) {
    // Those between were told to an earlier coordinator, or to nobody.
    status = progress_.CatchUp(request.progress(), request.verdicts(), now);
  } else {
    for (const Verdict& verdict : request.verdicts()) {
      if (status = add(verdict); !status.ok()) break;
    }
  }
  // A step that is repeated is no further: each that comes or goes may be a reason for that.
  if (progress_.step() > decided) GotOn(now);
  if (status.ok()) {
    for (const Verdict& verdict : request.verdicts()) {
      FollowClocks(verdict);
      CountAsProgress(verdict, now);
    }
    FollowMark(request.progress().mark(), now);
  }
  SaveIfAllHaveFinished(now);
  TellWatchers(replies);
  if (!status.ok()) return status;
  return ReportVerdictsReply();
}

absl::StatusOr<ReportEvaluationReply> CoordinatorCore::ReportEvaluation(
    const ReportEvaluationRequest& request, absl::Time now, Replies&) {
  auto caller = Admit(request.header(), Scope::kJobState, {WORKER}, now);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = InPhase({PREPARING, TRAINING, SAVING}); !status.ok()) return status;
  if (absl::Status status = InView(**caller); !status.ok()) return status;
  const Member& member = (*caller)->member;
  if (request.part().version() > LastVersion()) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(member), " evaluated version ",
                                                   request.part().version(),
                                                   ", which this job does not reach"));
  }
  const uint64_t parts = evaluations_.parts();
  if (absl::Status status = evaluations_.Add(member, request.part()); !status.ok()) return status;
  if (evaluations_.parts() != parts) Change();
  return ReportEvaluationReply();
}

absl::StatusOr<FinishReply> CoordinatorCore::Finish(const FinishRequest& request, absl::Time now,
                                                    Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, {WORKER}, now);
  if (!caller.ok()) return caller.status();
  const Member& member = (*caller)->member;
  if (finished_.has(member.id())) return FinishReply();
  if (absl::Status status = InPhase({PREPARING, TRAINING}); !status.ok()) return status;
  if (absl::Status status = InView(**caller); !status.ok()) return status;
  if (absl::Status status = finished_.Add(member, request); !status.ok()) return status;
  Change();
  // All steps are decided: nobody waits for a replacement any more, but a pipeline or node group
  // that has its part of the last evaluation to do.
  if (!joint()) vacancies_.clear();
  FillPlaces(now);
  last_event_ = now;
  SaveIfAllHaveFinished(now);
  TellWatchers(replies);
  return FinishReply();
}

absl::StatusOr<FailReply> CoordinatorCore::Fail(const FailRequest& request, absl::Time now,
                                                Replies& replies) {
  auto caller = Admit(request.header(), Scope::kCaller, now);
  if (!caller.ok()) return caller.status();
  if (IsApart(**caller)) {
    // Its model may be another one, say. That is no reason to end the job of others. No cause will
    // come to it: it ends when it hears that it is no member any more.
    const uint64_t member = (*caller)->member.id();
    members_.Release(**caller);
    members_.Fence(member, ReportedBy((*caller)->member, request.reason(), request.preempted(),
                                      progress_.step())
                               .text());
    watchers_.Refuse(member, absl::AbortedError("the member has gone"), replies);
    Change();
  } else if (request.preempted() && request.checkpoint_first()) {
    PreemptMember((*caller)->member, request, now);
  } else {
    FailMember((*caller)->member, request.reason(), request.preempted(), now);
  }
  TellWatchers(replies);
  return FailReply();
}

absl::StatusOr<LeaveReply> CoordinatorCore::Leave(const LeaveRequest& request, absl::Time now,
                                                  Replies& replies) {
  auto caller = Admit(request.header(), Scope::kCaller, now);
  if (!caller.ok()) return caller.status();
  if (request.drained()) {
    if (absl::Status status = LetGo(**caller, now); !status.ok()) return status;
    watchers_.Refuse((*caller)->member.id(), absl::AbortedError("the member has left"), replies);
    TellWatchers(replies);
    return LeaveReply();
  }
  if (!(*caller)->left) Change();
  if (life_.ended()) told_after_end_ = std::min(told_after_end_, now);
  if (IsApart(**caller)) {
    members_.Release(**caller);
  } else {
    members_.Leave(**caller);
    FailMember((*caller)->member, "left before the end of the job", /*preempted=*/false, now);
  }
  watchers_.Refuse((*caller)->member.id(), absl::AbortedError("the member has left"), replies);
  TellWatchers(replies);
  return LeaveReply();
}

}  // namespace parley
