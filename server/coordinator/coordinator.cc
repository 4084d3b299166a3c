#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace parley {
namespace {

std::map<Role, uint32_t> Places(const Cluster& cluster) {
  return {{SHARD, cluster.shards()}, {WORKER, cluster.workers()}};
}

}  // namespace

CoordinatorCore::CoordinatorCore(Options options)
    : options_(std::move(options)),
      members_(options_.job.name(), options_.fingerprint, Places(options_.job.cluster()),
               options_.liveness),
      ready_shards_(options_.job.cluster().shards(), false) {}

void CoordinatorCore::Open(uint64_t generation, const std::string& address, absl::Time now) {
  generation_ = generation;
  address_ = address;
  last_event_ = last_tick_ = now;
}

void CoordinatorCore::Close(Replies& replies) {
  closed_ = true;
  watchers_.Tell(State(), replies);
}

absl::StatusOr<CoordinatorCore::Caller*> CoordinatorCore::Admit(const CallHeader& header,
                                                                Scope scope, absl::Time now) {
  if (generation_ == 0) return absl::UnavailableError("the coordinator is starting; try again");
  auto caller = members_.Admit(header, now);
  if (!caller.ok() || scope == Scope::kCaller) return caller;
  if (header.view_epoch() == 0 || header.view_epoch() > view_.view_epoch() ||
      header.job_epoch() > job_epoch_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the call is of job_epoch ", header.job_epoch(), ", view_epoch ",
                     header.view_epoch(), ", the coordinator's are ", job_epoch_, " and ",
                     view_.view_epoch(), ": fetch the view and try again"));
  }
  if (header.job_epoch() < job_epoch_) {
    return absl::AbortedError(absl::StrCat("the job was rolled back: the call is of job_epoch ",
                                           header.job_epoch(), ", it is ", job_epoch_, " now"));
  }
  // An older view is no reason to refuse: what these calls touch is the caller's own place, and
  // where that has changed hands the caller is fenced.
  return caller;
}

absl::StatusOr<CoordinatorCore::Caller*> CoordinatorCore::Admit(const CallHeader& header,
                                                                Scope scope, Role role,
                                                                absl::Time now) {
  auto caller = Admit(header, scope, now);
  if (caller.ok() && (*caller)->member.role() != role) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe((*caller)->member), ": this call is not for its role"));
  }
  return caller;
}

absl::Status CoordinatorCore::InPhase(std::initializer_list<Phase> phases) const {
  for (Phase phase : phases) {
    if (life_.phase() == phase) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("job '", options_.job.name(), "' is ", Phase_Name(life_.phase()),
                   cause_ ? absl::StrCat(": ", cause_->text()) : ""));
}

absl::StatusOr<JoinReply> CoordinatorCore::Join(const JoinRequest& request, absl::Time now,
                                                Replies& replies) {
  if (generation_ == 0) return absl::UnavailableError("the coordinator is starting; try again");
  if (absl::Status status = members_.Check(request); !status.ok()) return status;
  if (life_.ended() && !members_.Knows(request.header().incarnation())) return InPhase({});
  auto joined = members_.Join(request, now);
  if (!joined.ok()) return joined.status();
  if (!joined->repeated) last_event_ = now;
  if (joined->replaced != nullptr) {
    const Member& old = joined->replaced->member;
    models_.Forget(old.id());
    watchers_.Refuse(old.id(), absl::AbortedError("fenced: a newer process has its address"),
                     replies);
    if (life_.phase() != GATHERING) {
      // In this release nobody is replaced once the view is made.
      FailMember(old,
                 absl::StrCat("a new process (pid ", request.pid(), ") has come at its address"),
                 /*preempted=*/false, now);
      TellWatchers(replies);
      return InPhase({});
    }
  }
  JoinReply reply;
  reply.set_member(joined->entry->member.id());
  reply.set_ordinal(joined->entry->member.ordinal());
  reply.set_generation(generation_);
  reply.set_job_directory(options_.job_directory);
  return reply;
}

absl::StatusOr<HeartbeatReply> CoordinatorCore::Heartbeat(const HeartbeatRequest& request,
                                                          absl::Time now, Replies&) {
  auto caller = Admit(request.header(), Scope::kCaller, now);
  if (!caller.ok()) return caller.status();
  members_.Heartbeat(**caller, request, now);
  return HeartbeatReply();
}

void CoordinatorCore::Watch(const WatchRequest& request, CallTime time, Replies& replies,
                            Done<WatchReply> done) {
  auto caller = Admit(request.header(), Scope::kCaller, time.now);
  if (!caller.ok()) {
    replies.Add<WatchReply>(std::move(done), caller.status());
  } else if (request.seen_revision() != revision_ || time.deadline <= time.now || closed_) {
    replies.Add<WatchReply>(std::move(done), State());
  } else {
    watchers_.Park((*caller)->member.id(), time.deadline, std::move(done), State(), replies);
  }
}

absl::StatusOr<RegisterModelReply> CoordinatorCore::RegisterModel(
    const RegisterModelRequest& request, absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kCaller, WORKER, now);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = InPhase({GATHERING, PREPARING, TRAINING, SAVING}); !status.ok()) {
    return status;
  }
  if (options_.start) {
    if (absl::Status status = CheckStart(*options_.start, request); !status.ok()) return status;
  }
  const Member& member = (*caller)->member;
  if (absl::Status status = models_.Register(member, request); !status.ok()) return status;
  if (life_.phase() == GATHERING) {
    last_event_ = now;
    MakeViewIfAllAreHere(now);
    TellWatchers(replies);
  }
  return RegisterModelReply();
}

absl::StatusOr<ReportReadyReply> CoordinatorCore::ReportReady(const ReportReadyRequest& request,
                                                              absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, SHARD, now);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = InPhase({PREPARING, TRAINING, SAVING}); !status.ok()) return status;
  if (request.version() != view_.start_version()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe((*caller)->member), " is ready with version ", request.version(),
                     ", the job starts from version ", view_.start_version()));
  }
  ready_shards_[(*caller)->member.ordinal()] = true;
  last_event_ = now;
  TrainIfShardsAreReady(now);
  TellWatchers(replies);
  return ReportReadyReply();
}

absl::StatusOr<ReportVerdictsReply> CoordinatorCore::ReportVerdicts(
    const ReportVerdictsRequest& request, absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, SHARD, now);
  if (!caller.ok()) return caller.status();
  // PREPARING too: the last shard's ReportReady may still be under way when a first step is
  // decided.
  if (absl::Status status = InPhase({PREPARING, TRAINING, SAVING}); !status.ok()) return status;
  if ((*caller)->member.ordinal() != view_.step_leader()) {
    return absl::InvalidArgumentError(absl::StrCat(Describe((*caller)->member),
                                                   " reports verdicts, but shard ",
                                                   view_.step_leader(), " decides steps"));
  }
  absl::Status status;
  for (const Verdict& verdict : request.verdicts()) {
    if (life_.phase() == SAVING && verdict.step() > progress_.step()) {
      status = absl::InvalidArgumentError(absl::StrCat("verdict of step ", verdict.step(),
                                                       " after all workers finished with step ",
                                                       progress_.step()));
    } else {
      status = progress_.Add(verdict, now);
    }
    if (!status.ok()) break;
    last_event_ = now;
  }
  SaveIfAllHaveFinished(now);
  TellWatchers(replies);
  if (!status.ok()) return status;
  return ReportVerdictsReply();
}

absl::StatusOr<ReportEvaluationReply> CoordinatorCore::ReportEvaluation(
    const ReportEvaluationRequest& request, absl::Time now, Replies&) {
  auto caller = Admit(request.header(), Scope::kJobState, WORKER, now);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = InPhase({PREPARING, TRAINING, SAVING}); !status.ok()) return status;
  const Member& member = (*caller)->member;
  if (request.part().version() > std::max<uint64_t>(view_.total_steps(), progress_.step())) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(member), " evaluated version ",
                                                   request.part().version(),
                                                   ", which this job does not reach"));
  }
  if (absl::Status status = evaluations_.Add(member, request.part()); !status.ok()) return status;
  return ReportEvaluationReply();
}

absl::StatusOr<FinishReply> CoordinatorCore::Finish(const FinishRequest& request, absl::Time now,
                                                    Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, WORKER, now);
  if (!caller.ok()) return caller.status();
  const Member& member = (*caller)->member;
  if (finished_.has(member.id())) return FinishReply();
  if (absl::Status status = InPhase({PREPARING, TRAINING}); !status.ok()) return status;
  if (absl::Status status = finished_.Add(member, request); !status.ok()) return status;
  last_event_ = now;
  SaveIfAllHaveFinished(now);
  TellWatchers(replies);
  return FinishReply();
}

absl::StatusOr<ReportCheckpointFileReply> CoordinatorCore::ReportCheckpointFile(
    const ReportCheckpointFileRequest& request, absl::Time now, Replies& replies) {
  auto caller = Admit(request.header(), Scope::kJobState, SHARD, now);
  if (!caller.ok()) return caller.status();
  const Member& member = (*caller)->member;
  if (absl::Status status = InPhase({SAVING, FINISHED}); !status.ok()) return status;
  if (!request.error().empty()) {
    if (life_.phase() == SAVING && request.step() == progress_.step() &&
        !checkpoint_.reported(member.ordinal())) {
      FailMember(member,
                 absl::StrCat("the checkpoint of step ", request.step(),
                              " could not be written: ", request.error()),
                 /*preempted=*/false, now);
      TellWatchers(replies);
    }
    return ReportCheckpointFileReply();
  }
  if (absl::Status status = checkpoint_.Add(member, request); !status.ok()) return status;
  last_event_ = now;
  if (auto work = checkpoint_.CommitIfComplete()) {
    file_work_.push_back(*std::move(work));
    ++revision_;  // the order is off
    TellWatchers(replies);
  }
  return ReportCheckpointFileReply();
}

absl::StatusOr<FailReply> CoordinatorCore::Fail(const FailRequest& request, absl::Time now,
                                                Replies& replies) {
  auto caller = Admit(request.header(), Scope::kCaller, now);
  if (!caller.ok()) return caller.status();
  FailMember((*caller)->member, request.reason(), request.preempted(), now);
  TellWatchers(replies);
  return FailReply();
}

absl::StatusOr<LeaveReply> CoordinatorCore::Leave(const LeaveRequest& request, absl::Time now,
                                                  Replies& replies) {
  auto caller = Admit(request.header(), Scope::kCaller, now);
  if (!caller.ok()) return caller.status();
  members_.Leave(**caller);
  FailMember((*caller)->member, "left before the end of the job", /*preempted=*/false, now);
  watchers_.Refuse((*caller)->member.id(), absl::AbortedError("the member has left"), replies);
  TellWatchers(replies);
  return LeaveReply();
}

void CoordinatorCore::Tick(absl::Time now, Replies& replies) {
  if (now - last_tick_ > options_.liveness / 2) {
    members_.GrantLeases(now);
    resumed_at_ = now;
  }
  last_tick_ = now;
  if (generation_ != 0 && !life_.ended()) {
    if (const Caller* lost = members_.Expired(now)) {
      EndJob(LostMember(lost->member, lost->heard_at, now, progress_.step()), now);
    } else {
      EndStall(now);
    }
  }
  TellWatchers(replies);
  if (watchers_.AnyDue(now)) watchers_.Expire(now, State(), replies);
}

void CoordinatorCore::FailItself(const std::string& reason, bool preempted, absl::Time now,
                                 Replies& replies) {
  EndJob(OfCoordinator(address_, reason, preempted, progress_.step()), now);
  TellWatchers(replies);
}

std::vector<FileWork> CoordinatorCore::TakeFileWork() { return std::exchange(file_work_, {}); }

void CoordinatorCore::FileWorkDone(const FileWork& work, const absl::Status& result, absl::Time now,
                                   Replies& replies) {
  if (!result.ok()) {
    FailItself(absl::StrCat("the checkpoint ", work.folder, " could not be ",
                            work.kind == FileWork::Kind::kCommit ? "committed: " : "begun: ",
                            result.message()),
               /*preempted=*/false, now, replies);
    return;
  }
  last_event_ = now;
  if (work.kind == FileWork::Kind::kCreateFolder) {
    checkpoint_.FolderIsThere();
    ++revision_;  // the order goes out
  } else {
    checkpoint_.Committed(now);
    Enter(FINISHED, now);
  }
  TellWatchers(replies);
}

bool CoordinatorCore::MayExit(absl::Time now) const {
  if (!life_.ended()) return false;
  if (life_.phase() == FAILED && now - ended_at_ >= options_.liveness) return true;
  return members_.AllGone(now);
}

bool CoordinatorCore::Enter(Phase phase, absl::Time now) {
  if (!life_.Enter(phase)) return false;
  ++revision_;
  last_event_ = now;
  if (phase == TRAINING) {
    training_since_ = now;
    progress_.StartClock(now);
  }
  if (phase == SAVING || phase == FAILED) progress_.StopClock(now);
  if (life_.ended()) ended_at_ = now;
  return true;
}

void CoordinatorCore::MakeViewIfAllAreHere(absl::Time now) {
  if (life_.phase() != GATHERING || !members_.Complete() ||
      models_.count() != members_.places(WORKER)) {
    return;
  }
  auto view = MakeView(options_.job, members_.Present(), models_.model(),
                       options_.start ? &*options_.start : nullptr, job_epoch_);
  if (!view.ok()) {
    EndJob(
        OfCoordinator(address_, absl::StrCat("cannot place the model: ", view.status().message()),
                      /*preempted=*/false, 0),
        now);
    return;
  }
  view_ = *std::move(view);
  progress_.Start(view_.start_version(), view_.data_position(), view_.training_samples());
  evaluations_.Start(members_.places(WORKER), view_.test_samples());
  Enter(PREPARING, now);
}

void CoordinatorCore::TrainIfShardsAreReady(absl::Time now) {
  if (life_.phase() != PREPARING) return;
  if (std::count(ready_shards_.begin(), ready_shards_.end(), false) != 0) return;
  Enter(TRAINING, now);
  SaveIfAllHaveFinished(now);
}

void CoordinatorCore::SaveIfAllHaveFinished(absl::Time now) {
  // A worker knows its last verdict from the step leader, and so perhaps before the coordinator
  // does.
  if (life_.phase() != TRAINING || finished_.count() != members_.places(WORKER) ||
      finished_.last_step() > progress_.step()) {
    return;
  }
  if (finished_.last_step() < progress_.step()) {
    EndJob(OfCoordinator(address_,
                         absl::StrCat("the workers finished with step ", finished_.last_step(),
                                      ", but later steps are decided"),
                         /*preempted=*/false, progress_.step()),
           now);
    return;
  }
  Enter(SAVING, now);
  if (!options_.job.checkpoint().at_end()) {
    Enter(FINISHED, now);
    return;
  }
  Manifest manifest;
  manifest.set_format(1);
  manifest.set_job_name(options_.job.name());
  manifest.set_step(progress_.step());
  manifest.set_job_epoch(job_epoch_);
  manifest.set_view_epoch(view_.view_epoch());
  *manifest.mutable_tensors() = view_.tensors();
  *manifest.mutable_data_position() = progress_.position();
  manifest.set_seed(options_.job.seed());
  *manifest.mutable_job() = options_.job;
  file_work_.push_back(checkpoint_.Begin(options_.checkpoint_directory, members_.places(SHARD),
                                         std::move(manifest), now));
}

void CoordinatorCore::EndJob(FirstCause cause, absl::Time now) {
  if (!Enter(FAILED, now)) return;  // another cause was first, or the job has finished
  cause_ = std::move(cause);
}

void CoordinatorCore::FailMember(const Member& member, const std::string& reason, bool preempted,
                                 absl::Time now) {
  EndJob(ReportedBy(member, reason, preempted, progress_.step()), now);
}

void CoordinatorCore::EndStall(absl::Time now) {
  if (life_.phase() == TRAINING) {
    // The one that has stood still for longest; the others may only wait for it.
    const Caller* stalled = nullptr;
    absl::Time since = now - options_.stall_timeout;
    for (const Caller* entry : members_.Holders()) {
      if (entry->member.role() != WORKER || finished_.has(entry->member.id())) continue;
      const absl::Time moved = std::max({entry->progressed_at, training_since_, resumed_at_});
      if (moved > since || (stalled != nullptr && moved >= since)) continue;
      stalled = entry;
      since = moved;
    }
    if (stalled != nullptr) {
      EndJob(StalledMember(stalled->member, since, now, progress_.step()), now);
      return;
    }
    if (finished_.count() != members_.places(WORKER)) return;
  }
  const Missing missing = WhatIsMissing();
  absl::Time moved = std::max(last_event_, resumed_at_);
  for (const Caller* entry : missing.are_awaited) moved = std::max(moved, entry->progressed_at);
  if (now - moved < options_.stall_timeout) return;
  EndJob(OfCoordinator(address_,
                       absl::StrCat("has waited in vain since ", FormatUtc(moved), " (",
                                    absl::ToInt64Seconds(now - moved),
                                    " s): ", absl::StrJoin(missing.who, "; ")),
                       /*preempted=*/false, progress_.step()),
         now);
}

void CoordinatorCore::TellWatchers(Replies& replies) {
  if (told_revision_ == revision_) return;
  told_revision_ = revision_;
  if (watchers_.size() != 0) watchers_.Tell(State(), replies);
}

}  // namespace parley
