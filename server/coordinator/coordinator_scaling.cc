// How many workers the job wants, and who of them is to go (docs/membership.md).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/own_program.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/view_change.h"

namespace parley {
namespace {

// What helps where the running job cannot change so.
std::string Instead(const std::string& field) {
  return absl::StrCat(
      "; stop the job (`parley stop`) and start it from its checkpoint with another ", field);
}

absl::Status Refused(const std::string& why) { return absl::FailedPreconditionError(why); }

}  // namespace

uint32_t CoordinatorCore::LeastWorkers() const {
  // A step of a job with backup workers counts all but so many.
  return std::max(MinWorkers(), options_.job.consistency().sync().backup() + 1);
}

absl::Status CoordinatorCore::MayScale(std::initializer_list<Phase> phases) const {
  if (generation_ == 0) return absl::UnavailableError("the coordinator is starting; try again");
  const std::string job = absl::StrCat("job '", options_.job.name(), "' ");
  if (joint()) {
    return Refused(absl::StrCat(job,
                                "needs each process of its pipelines and node groups, so that the "
                                "number of its workers is fixed",
                                Instead("cluster.workers")));
  }
  if (WaitsForReplacement() || options_.job.consistency().sync().deterministic()) {
    return Refused(absl::StrCat(
        job,
        "is deterministic, or waits for a worker that is lost (lost_worker: WAIT), so that the "
        "number of its workers is fixed",
        Instead("cluster.workers")));
  }
  if (absl::Status status = InPhase(phases); !status.ok()) {
    return Refused(
        absl::StrCat(status.message(), life_.ended() ? "" : "; try again when it trains"));
  }
  if (preemption_) return Refused(absl::StrCat(job, "is about to end: ", preemption()));
  if (finished_.begun()) return Refused(absl::StrCat(job, "is about to end: all steps are done"));
  return absl::OkStatus();
}

absl::StatusOr<SetWorkersReply> CoordinatorCore::SetWorkers(const SetWorkersRequest& request,
                                                            absl::Time now, Replies& replies) {
  if (absl::Status status = OfThisJob(request.job()); !status.ok()) return status;
  if (absl::Status status = MayScale({GATHERING, TRAINING}); !status.ok()) return status;
  const uint32_t wanted = request.workers();
  if (wanted < LeastWorkers()) {
    return Refused(absl::StrCat("job '", options_.job.name(), "' takes ", LeastWorkers(),
                                " workers at least (cluster.min_workers, and more than "
                                "consistency.sync.backup), not ",
                                wanted, Instead("cluster.min_workers")));
  }
  if (wanted > kMostMembers) {
    return Refused(absl::StrCat("a job has ", kMostMembers, " workers at most, not ", wanted));
  }
  std::vector<const Caller*> staying = members_.Staying(WORKER);
  std::vector<const Caller*> to_go;
  uint32_t contributing = StayingContributors();
  // Contributor 0 gives the initial values. Where it was lost, one place stays free for another.
  const bool first_is_to_come =
      life_.phase() == GATHERING && !staying.empty() && staying.front()->member.ordinal() != 0;
  while (staying.size() > wanted - (first_is_to_come ? 1 : 0)) {
    if (TakesPart(view_, staying.back()->member.id())) --contributing;
    to_go.push_back(staying.back());
    staying.pop_back();
  }
  if (life_.phase() == TRAINING && !to_go.empty() && contributing < LeastWorkers()) {
    return Refused(absl::StrCat("of the workers that would stay ", staying.size() - contributing,
                                " have not begun yet, and ", contributing, " are fewer than ",
                                LeastWorkers(), "; try again when all take part"));
  }
  SetWorkersReply reply;
  reply.set_before(wanted_workers());
  reply.set_here(static_cast<uint32_t>(staying.size()));
  reply.set_own_program(NeedsOwnProgram(options_.job));
  if (wanted != wanted_workers()) {
    has_scaled_ = true;
    members_.SetPlaces(WORKER, wanted);
    Came(/*is_awaited=*/life_.phase() == GATHERING, now);
    ++revision_;
    Change();
  }
  for (const Caller* worker : to_go) TellToGo(*worker, now);
  // Where some go and as many are wanted again later, these are what the job waits for.
  most_gathered_ = Gathered();
  MakeViewIfAllAreHere(now);
  TellWatchers(replies);
  return reply;
}

absl::StatusOr<DrainReply> CoordinatorCore::Drain(const DrainRequest& request, absl::Time now,
                                                  Replies& replies) {
  if (absl::Status status = OfThisJob(request.job()); !status.ok()) return status;
  if (request.role() == SHARD) {
    return Refused(
        absl::StrCat("shard ", request.ordinal(),
                     " has a part of the parameters, which no other one takes over while "
                     "the job runs",
                     Instead("cluster.shards")));
  }
  if (request.role() != WORKER && request.role() != STAGE) {
    return absl::InvalidArgumentError("only a worker can be told to go, such as worker-3");
  }
  if (absl::Status status = MayScale({TRAINING}); !status.ok()) return status;
  const Caller* const worker = members_.Holder(request.role(), request.ordinal());
  if (worker == nullptr || worker->left) {
    return absl::NotFoundError(absl::StrCat("job '", options_.job.name(), "' has no ",
                                            RoleWord(request.role()), " ", request.ordinal(),
                                            "; `parley status` shows which there are"));
  }
  if (worker->drained) return DrainReply();
  const uint32_t contributing =
      StayingContributors() - (TakesPart(view_, worker->member.id()) ? 1 : 0);
  if (contributing < LeastWorkers()) {
    return Refused(absl::StrCat("without ", Describe(worker->member), " ", contributing,
                                " workers take part, and job '", options_.job.name(), "' needs ",
                                LeastWorkers(),
                                " (cluster.min_workers, and more than consistency.sync.backup)",
                                Instead("cluster.min_workers")));
  }
  has_scaled_ = true;
  members_.SetPlaces(WORKER, wanted_workers() - 1);
  TellToGo(*worker, now);
  TellWatchers(replies);
  return DrainReply();
}

void CoordinatorCore::TellToGo(const Caller& worker, absl::Time now) {
  members_.Drain(worker.member.id(), now);
  if (life_.phase() == GATHERING) models_.Forget(worker.member.id());
  ++revision_;
  Change();
}

absl::Status CoordinatorCore::LetGo(Caller& worker, absl::Time now) {
  if (worker.left) return absl::OkStatus();
  if (!worker.drained) {
    return Refused(absl::StrCat("nobody has told ", Describe(worker.member), " to go"));
  }
  Change();
  const uint64_t id = worker.member.id();
  if (life_.ended()) {
    members_.Leave(worker);
    return absl::OkStatus();
  }
  SeeOff(worker);
  members_.Release(worker);
  if (!TakesPart(view_, id)) return absl::OkStatus();
  finished_.Forget(id);
  ChangeView(WithoutMember(view_, id, /*keep_place=*/false, progress_.step() + 1), now);
  SaveIfAllHaveFinished(now);
  return absl::OkStatus();
}

bool CoordinatorCore::WasLetGo(uint64_t member) const {
  const Caller* const found = members_.Find(member);
  return found != nullptr && found->drained && found->left && !found->fenced;
}

void CoordinatorCore::EndDrains(absl::Time now, Replies& replies) {
  // While a shard is missing nobody can end a step.
  if (!lost_shards_.empty() || !InPhase({GATHERING, TRAINING}).ok()) return;
  const absl::Time since =
      life_.phase() == TRAINING ? std::max(training_since_, resumed_at_) : resumed_at_;
  for (const uint64_t id : members_.Drained()) {
    const Caller& worker = *members_.Find(id);
    if (finished_.has(id)) continue;  // it sees the end of the job
    const absl::Time told = std::max(worker.drained_at, since);
    if (now - told < options_.stall_timeout) continue;
    LoseContributing(
        worker,
        ReportedBy(worker.member,
                   absl::StrCat("was told to go at ", FormatUtc(told), ", and has not gone"),
                   /*preempted=*/false, progress_.step()),
        now, replies);
  }
}

}  // namespace parley
