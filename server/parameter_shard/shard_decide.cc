// Shard: how a step is decided and carried out.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/contributor_places.h"
#include "common/job/data_division.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/since_text.h"

namespace parley {
namespace {

// Values that an answer to Complete may carry. They are copied under the shard's lock.
constexpr size_t kMostValueBytes = 1 << 20;

// Verdicts kept for members that ask again; one that counts in each step is at most a step behind.
constexpr size_t kVerdictsKept = 64;

absl::Status NoSteps() {
  return absl::InvalidArgumentError("this job is bounded or async: no step is decided for all");
}

CompleteReply Stale(uint64_t step, uint32_t attempt) {
  CompleteReply reply;
  reply.mutable_verdict()->set_step(step);
  reply.mutable_verdict()->set_attempt(attempt);
  reply.mutable_verdict()->set_outcome(Verdict::STALE);
  return reply;
}

}  // namespace

CallHeader Shard::OwnHeader() const {
  CallHeader header;
  header.set_job(job_.name());
  header.set_member(routing_->self().id());
  header.set_incarnation(routing_->self().incarnation());
  header.set_job_epoch(routing_->view().job_epoch());
  header.set_view_epoch(routing_->view().view_epoch());
  return header;
}

absl::StatusOr<CompleteReply> Shard::AnswerTo(uint32_t contributor, uint64_t composition,
                                              const Verdict& verdict,
                                              absl::Span<const uint32_t> pulled) {
  if (verdict.outcome() == Verdict::RETRY) {
    // It would send the same again, and the pipeline or node group that there is now something
    // else.
    if (absl::Status fenced = FenceComposition(contributor, composition); !fenced.ok()) {
      return fenced;
    }
  }
  const bool counts =
      std::any_of(verdict.shares().begin(), verdict.shares().end(),
                  [&](const Share& share) { return share.contributor() == contributor; });
  if (!counts && verdict.outcome() != Verdict::RETRY) {
    return Stale(verdict.step(), verdict.attempt());
  }
  CompleteReply reply;
  *reply.mutable_verdict() = verdict;
  if (verdict.outcome() == Verdict::RETRY || verdict.step() != version_) return reply;
  size_t bytes = 0;
  for (const uint32_t slice : pulled) bytes += table_->Find(slice)->value_bytes();
  if (bytes > kMostValueBytes) return reply;
  const absl::StatusOr<PulledVersion> values = PinSlices(version_, pulled);
  if (!values.ok()) return reply;
  for (const TensorSlice& slice : SlicesOf(*values)) CopyTo(slice, *reply.add_values());
  return reply;
}

absl::Status Shard::PushCarried(const CompleteRequest& request) {
  if (request.pushed().empty()) return absl::OkStatus();
  PushRequest push;
  *push.mutable_header() = request.header();
  push.set_step(request.step());
  push.set_attempt(request.attempt());
  push.set_contributor(request.share().contributor());
  push.set_part(request.part());
  push.set_composition(request.composition());
  if (request.has_pushed_scale()) push.set_scale(request.pushed_scale());
  return Push(push, ViewsOf(request.pushed())).status();
}

void Shard::Complete(const CompleteRequest& request, CallTime time, Replies& replies,
                     Done<CompleteReply> done) {
  const auto answer = [&](absl::StatusOr<CompleteReply> reply) {
    replies.Add<CompleteReply>(std::move(done), std::move(reply));
  };
  if (absl::Status status = Fence(request.header()); !status.ok()) return answer(status);
  if (clocked_ != nullptr) return CompleteClock(request, time, replies, std::move(done));
  if (!gate_.has_value()) {
    return answer(NotLeader());
  }
  if (!ready()) return answer(absl::UnavailableError("the step leader has no start values yet"));
  if (absl::Status status = CheckPulled(request.header(), request.pulled()); !status.ok()) {
    return answer(status);
  }
  const uint32_t contributor = request.share().contributor();
  for (const Verdict& verdict : verdicts_) {
    if (verdict.step() == request.step() &&
        (verdict.attempt() == request.attempt() || verdict.outcome() != Verdict::RETRY)) {
      return answer(AnswerTo(contributor, request.composition(), verdict, request.pulled()));
    }
  }
  if (request.step() <= version_) {
    // Long decided, nobody knows any more with whom: the caller has to find its place anew anyway.
    return answer(Stale(request.step(), request.attempt()));
  }
  if (request.step() != gate_->step() || request.attempt() != gate_->attempt()) {
    return answer(absl::InvalidArgumentError(
        absl::StrCat("step ", request.step(), " attempt ", request.attempt(), " is not open: step ",
                     gate_->step(), " attempt ", gate_->attempt(), " is")));
  }
  if (absl::Status status = FencePart(request.header(), contributor, request.part());
      !status.ok()) {
    return answer(status);
  }
  if (absl::Status status = CheckSize(request); !status.ok()) return answer(status);
  if (absl::Status status = RoomForComplete(request.header().member()); !status.ok()) {
    return answer(status);
  }
  for (const uint32_t slice : request.none()) {
    if (slice >= static_cast<uint32_t>(routing_->view().slices_size())) {
      return answer(absl::InvalidArgumentError(absl::StrCat("there is no slice ", slice)));
    }
  }
  ParkedComplete parked;
  parked.contributor = contributor;
  parked.composition = request.composition();
  parked.at_once = request.at_once();
  parked.member = request.header().member();
  parked.step = request.step();
  parked.attempt = request.attempt();
  parked.since = time.now;
  parked.deadline = time.deadline;
  parked.pulled.assign(request.pulled().begin(), request.pulled().end());
  const bool counts_already =
      gate_->contributors().count(contributor) != 0 && !gate_->TakesPart(contributor);
  if (gate_->closing() || counts_already) {
    // Nothing more counts in this attempt; the verdict is still of interest.
    parked.done = std::move(done);
    completes_.push_back(std::move(parked));
    return;
  }
  // Found with the verdict it would end the job, in the step leader's name.
  if (absl::Status status = decided_.Check(request.data_epoch(), request.share()); !status.ok()) {
    return answer(absl::InvalidArgumentError(
        absl::StrCat("contributor ", contributor, ": ", status.message())));
  }
  if (absl::Status status = FenceComposition(contributor, request.composition()); !status.ok()) {
    return answer(status);
  }
  if (absl::Status status = PushCarried(request); !status.ok()) return answer(status);
  if (absl::Status status = CheckPushed(request); !status.ok()) return answer(status);
  absl::StatusOr<StepGate::Output> output = gate_->Complete(request);
  if (!output.ok()) return answer(output.status());
  parked.done = std::move(done);
  completes_.push_back(std::move(parked));
  Do(*std::move(output), time.now, replies);
}

absl::Status Shard::CheckPushed(const CompleteRequest& request) const {
  const std::set<uint32_t> none(request.none().begin(), request.none().end());
  const uint32_t contributor = request.share().contributor();
  for (const auto& [id, slice] : table_->slices()) {
    const bool here = slice.Has(contributor, request.part());
    if (here && none.count(id) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("`none` names ", slice.name(), ", which was pushed"));
    }
    if (here || none.count(id) != 0 || FindPart(id, contributor, request.part()) == nullptr) {
      continue;
    }
    return absl::UnavailableError(absl::StrCat("step ", request.step(), " attempt ",
                                               request.attempt(), " is completed before ",
                                               slice.name(), " has come"));
  }
  return absl::OkStatus();
}

void Shard::Do(StepGate::Output output, absl::Time now, Replies& replies) {
  while (output.close.has_value()) {
    CloseRequest close = *std::move(output.close);
    *close.mutable_header() = OwnHeader();
    for (const Member& member : routing_->view().members()) {
      if (member.role() == SHARD && member.ordinal() != ordinal_) {
        outbox_.push_back({member.ordinal(), close});
      }
    }
    absl::StatusOr<CloseReply> reply = ReduceOwn(close);
    if (!reply.ok()) return SetError(reply.status(), replies);
    output = gate_->OnCloseReply(ordinal_, close.step(), close.attempt(), *reply, routing_->view());
  }
  if (!output.verdict.has_value()) return;

  Verdict verdict = *std::move(output.verdict);
  verdict.set_view_epoch(routing_->view().view_epoch());
  if (verdict.outcome() != Verdict::RETRY) {
    for (const uint32_t contributor : routing_->Contributors()) {
      verdict.add_contributors(contributor);
    }
    if (verdict.shares().empty()) verdict.set_data_epoch(decided_.position().epoch());
  }
  const uint64_t epochs = decided_.position().epoch();
  if (absl::Status status = decided_.Add(verdict); !status.ok()) return SetError(status, replies);
  if (verdict.outcome() != Verdict::RETRY) {
    *verdict.mutable_next() = PlaceInData(
        job_, decided_.position(), routing_->view().training_samples(),
        static_cast<uint32_t>(verdict.contributors_size()) * ShapeOf(job_.cluster()).group);
    OrderEvaluation(epochs, verdict);
    verdict.set_checkpoint(MarkForCheckpoint(verdict.step()));
  }
  if (absl::Status status = CarryOut(verdict, now, replies); !status.ok()) {
    return SetError(status, replies);
  }
  for (const Member& member : routing_->view().members()) {
    if (member.role() != SHARD || member.ordinal() == ordinal_) continue;
    DecideRequest decide;
    *decide.mutable_header() = OwnHeader();
    *decide.mutable_verdict() = verdict;
    outbox_.push_back({member.ordinal(), std::move(decide)});
  }
  to_report_.push_back(verdict);
  to_report_.back().clear_none();
  verdicts_.push_back(verdict);
  if (verdicts_.size() > kVerdictsKept) verdicts_.pop_front();

  AnswerCompletes(verdict, replies);
  // Who enters is told of an evaluation of this step, which is kept when the step has ended.
  if (work_ == nullptr) AnswerEnters(replies);
}

void Shard::AnswerCompletes(const Verdict& verdict, Replies& replies) {
  for (auto it = completes_.begin(); it != completes_.end();) {
    // What was lent is read until the work has ended.
    const bool must_wait = work_ != nullptr && !it->at_once;
    if (must_wait || it->step != verdict.step() || it->attempt != verdict.attempt()) {
      ++it;
      continue;
    }
    replies.Add<CompleteReply>(std::move(it->done),
                               AnswerTo(it->contributor, it->composition, verdict, it->pulled));
    it = completes_.erase(it);
  }
}

std::shared_ptr<StepWork> Shard::TakeWork() {
  return std::exchange(work_taken_, true) ? nullptr : work_;
}

void Shard::OnUpdated(size_t piece, const absl::Status& status, Replies& replies) {
  work_->End(piece, status);
  if (work_->HasEnded()) {
    counts_.copied_bytes += table_->TakeCopied();
    if (!work_->error().ok()) SetError(work_->error(), replies);
    work_.reset();
    if (error_.has_value()) return;
    if (absl::Status ended = EndStep(at_work_); !ended.ok()) return SetError(ended, replies);
    UpdateAheadOfGradients();
    AnswerCompletes(at_work_, replies);
    AnswerEnters(replies);
  }
  AnswerPulls(replies);
}

void Shard::DropAttempt() {
  const ParameterTable::AheadCounts ahead = table_->Drop();
  counts_.ahead_taken += ahead.taken;
  counts_.ahead_dropped += ahead.dropped;
}

absl::Status Shard::EndStep(const Verdict& verdict) {
  DropAttempt();
  if (verdict.has_evaluation()) KeepForEvaluation(verdict.evaluation());
  return verdict.checkpoint() ? KeepForCheckpoint() : absl::OkStatus();
}

void Shard::OrderEvaluation(uint64_t epochs_before, Verdict& verdict) const {
  if (routing_->view().test_samples() == 0) return;
  const uint64_t epochs = decided_.position().epoch();
  if (epochs == epochs_before && !HasEnded()) return;
  EvaluationOrder& order = *verdict.mutable_evaluation();
  order.set_version(verdict.step());
  // A job that counts steps may end within a data epoch.
  order.set_epoch(epochs == epochs_before ? epochs + 1 : epochs);
  *order.mutable_contributors() = verdict.contributors();
}

bool Shard::MarkForCheckpoint(uint64_t version) {
  // The last version becomes the checkpoint at the end.
  if (HasEnded() && job_.checkpoint().at_end()) return false;
  return marks_->Mark(version, decided_.position());
}

void Shard::KeepForEvaluation(const EvaluationOrder& order) {
  evaluation_ = order;
  kept_.clear();
  for (const auto& [id, slice] : table_->slices()) kept_.push_back(slice.PinVersion(version_));
}

void Shard::OnCloseReply(uint32_t shard, const CloseRequest& request, const CloseReply& reply,
                         absl::Time now, Replies& replies) {
  if (!gate_.has_value() || error_.has_value() || cause_.has_value()) return;
  if (request.header().job_epoch() != routing_->view().job_epoch()) return;
  for (const SliceNorms& norms : reply.norms()) {
    const uint32_t slice = norms.slice();
    if (slice >= static_cast<uint32_t>(routing_->view().slices_size()) ||
        routing_->slice(slice).shard() != shard) {
      return SetError(absl::InternalError(absl::StrCat("shard ", shard, " gave norms of slice ",
                                                       slice, ", which it does not have")),
                      replies);
    }
  }
  Do(gate_->OnCloseReply(shard, request.step(), request.attempt(), reply, routing_->view()), now,
     replies);
}

absl::StatusOr<CloseReply> Shard::Close(const CloseRequest& request) {
  if (absl::Status status = FenceLeader(request.header()); !status.ok()) return status;
  if (clocked_ != nullptr) return NoSteps();
  const uint64_t open = version_ + 1;
  if (request.step() < open || (request.step() == open && request.attempt() < attempt_)) {
    return absl::AbortedError(absl::StrCat("step ", request.step(), " attempt ", request.attempt(),
                                           " is decided already"));
  }
  if (!ready() || request.step() > open || request.attempt() > attempt_) {
    return absl::UnavailableError(absl::StrCat("shard ", ordinal_, " is not at step ",
                                               request.step(), " attempt ", request.attempt(),
                                               " yet"));
  }
  return ReduceOwn(request);
}

absl::StatusOr<CloseReply> Shard::ReduceOwn(const CloseRequest& request) {
  CloseRequest content = request;
  content.clear_header();
  std::string said = content.SerializeAsString();
  if (closed_) {
    if (said == close_request_) return close_reply_;
    return absl::InvalidArgumentError(
        absl::StrCat("step ", request.step(), " was closed before with other contributors"));
  }
  const Counted counted = Counted::From(request);
  if (absl::Status status = table_->Verify(counted, open_routings()); !status.ok()) return status;
  absl::StatusOr<CloseReply> reply = table_->Reduce(counted, open_routings());
  if (!reply.ok()) return reply.status();
  closed_ = true;
  close_request_ = std::move(said);
  close_reply_ = *std::move(reply);
  return close_reply_;
}

absl::StatusOr<DecideReply> Shard::Decide(const DecideRequest& request, absl::Time now,
                                          Replies& replies) {
  if (absl::Status status = FenceLeader(request.header()); !status.ok()) return status;
  if (clocked_ != nullptr) return NoSteps();
  const Verdict& verdict = request.verdict();
  const uint64_t open = version_ + 1;
  if (verdict.step() < open || (verdict.step() == open && verdict.attempt() < attempt_)) {
    return DecideReply();  // a repetition
  }
  if (!ready() || verdict.step() > open || verdict.attempt() > attempt_) {
    return absl::UnavailableError(absl::StrCat("shard ", ordinal_, " is not at step ",
                                               verdict.step(), " attempt ", verdict.attempt(),
                                               " yet"));
  }
  if (verdict.view_epoch() > routing_->view().view_epoch()) {
    return absl::UnavailableError(
        absl::StrCat("shard ", ordinal_, " has view ", routing_->view().view_epoch(), ", not yet ",
                     verdict.view_epoch(), ", which governs what comes after step ", verdict.step(),
                     " attempt ", verdict.attempt()));
  }
  if (absl::Status status = CarryOut(verdict, now, replies); !status.ok()) {
    SetError(status, replies);
    return status;
  }
  return DecideReply();
}

absl::Status Shard::CarryOut(const Verdict& verdict, absl::Time now, Replies& replies) {
  switch (verdict.outcome()) {
    case Verdict::RETRY:
      DropAttempt();
      ++attempt_;
      ++counts_.verdicts_retry;
      closed_ = false;
      opened_ = now;
      return absl::OkStatus();
    case Verdict::APPLY:
    case Verdict::SKIP:
      break;
    default:
      return absl::InvalidArgumentError("a verdict without an outcome");
  }
  const Counted counted = Counted::From(verdict);
  // Of a skipped step nothing remains, whatever is in the sums.
  if (verdict.outcome() == Verdict::APPLY) {
    if (absl::Status status = table_->Verify(counted, open_routings()); !status.ok()) return status;
  }
  StepWork work = table_->Decide(verdict, counted, open_routings());
  const bool later = resources_.later != nullptr && work.elements() >= resources_.later_from;
  if (!later) {
    const absl::Status carried_out = table_->CarryOut(work);
    counts_.copied_bytes += table_->TakeCopied();
    if (!carried_out.ok()) return carried_out;
  }
  ++(verdict.outcome() == Verdict::APPLY ? counts_.verdicts_apply : counts_.verdicts_skip);
  version_ = verdict.step();
  if (later) {
    work_ = std::make_shared<StepWork>(std::move(work));
    work_taken_ = false;
    at_work_ = verdict;
  } else {
    if (absl::Status ended = EndStep(verdict); !ended.ok()) return ended;
  }
  PlaceOpenStep(verdict.next());
  OpenStep(verdict.view_epoch(), now);
  if (!later) UpdateAheadOfGradients();
  AnswerPulls(replies);
  return absl::OkStatus();
}

std::string Shard::WhatIsMissing(absl::Time now) const {
  const std::string since = SinceText(opened_, now);
  if (!ready()) {
    return absl::StrCat("shard ", ordinal_, " has no start values for ", slices_not_set().size(),
                        " of its slices", since);
  }
  if (clocked_ != nullptr) return WhoHoldsUp(now);
  std::string step = absl::StrCat("in step ", version_ + 1, " attempt ", attempt_, " ");
  if (gate_.has_value()) {
    if (gate_->closing()) return absl::StrCat(step, "another shard's norms are missing", since);
    std::set<std::string> missing;
    for (const auto& [contributor, part] : gate_->MissingParts()) {
      missing.insert(routing_->DescribeSender(contributor, part));
    }
    if (missing.empty()) return absl::StrCat(step, "no contributor is left", since);
    return absl::StrCat(step, absl::StrJoin(missing, ", "), " did not complete", since);
  }
  std::set<std::string> missing;
  for (const auto& [id, slice] : table_->slices()) {
    for (const PartRange& part : open_view().PartsOf(id)) {
      // Those that have left since may count or not: the step leader says.
      if (routing_->FindContributor(part.contributor) == nullptr) continue;
      if (slice.Has(part.contributor, part.part)) continue;
      missing.insert(routing_->DescribeSender(part.contributor, part.part));
    }
  }
  const Member* leader = routing_->FindShard(routing_->view().step_leader());
  std::string verdict = absl::StrCat("the verdict of the step leader, ",
                                     routing_->Describe(leader->id()), ", is missing");
  if (missing.empty()) return absl::StrCat(step, verdict, since);
  return absl::StrCat(step, "gradients of ", absl::StrJoin(missing, ", "), " are missing, and ",
                      verdict, since);
}

}  // namespace parley
