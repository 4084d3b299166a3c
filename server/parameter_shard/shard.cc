#include "server/parameter_shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// Views kept for verdicts that are on their way; each change of membership makes one.
constexpr size_t kFormerRoutings = 16;

StepGate::Options GateOptions(const JobConfig& job, const Routing& routing) {
  StepGate::Options options;
  options.clip_norm = job.optimizer().clip_norm();
  options.clip = options.clip_norm > 0;
  options.skip_nonfinite = job.optimizer().skip_nonfinite();
  options.shards = routing.shards();
  return options;
}

// Whether the same members stand behind all parts of the contributor.
bool SameSenders(const Contributor& contributor, const Routing& routing) {
  const Contributor* now = routing.FindContributor(contributor.ordinal());
  return now != nullptr &&
         std::equal(now->part_members().begin(), now->part_members().end(),
                    contributor.part_members().begin(), contributor.part_members().end());
}

StepGate::Contributors PartsOfContributors(const Routing& routing) {
  StepGate::Contributors contributors;
  for (const Contributor& contributor : routing.view().contributors()) {
    contributors[contributor.ordinal()] = static_cast<uint32_t>(contributor.part_members_size());
  }
  return contributors;
}

}  // namespace

Shard::Shard(JobConfig job, uint32_t ordinal) : job_(std::move(job)), ordinal_(ordinal) {}

absl::Status Shard::SetView(const ClusterView& view, absl::Time now, Replies& replies) {
  if (cause_.has_value()) return absl::OkStatus();
  if (routing_ != nullptr) {
    const ClusterView& own = routing_->view();
    if (view.job_epoch() < own.job_epoch() ||
        (view.job_epoch() == own.job_epoch() && view.view_epoch() <= own.view_epoch())) {
      return absl::OkStatus();
    }
  }
  absl::StatusOr<std::shared_ptr<const Routing>> routing = Routing::Make(view, ordinal_);
  if (!routing.ok()) return routing.status();
  if (routing_ == nullptr || view.job_epoch() > routing_->view().job_epoch()) {
    StartEpoch(*std::move(routing), now, replies);
    return absl::OkStatus();
  }
  if (!routing_->SamePlacement(**routing) || routing_->view().step_leader() != view.step_leader()) {
    return absl::UnimplementedError(absl::StrCat(
        "view ", view.view_epoch(), " moves slices or the step leader while the job trains"));
  }
  ChangeMembers(*std::move(routing), now, replies);
  return absl::OkStatus();
}

void Shard::StartEpoch(std::shared_ptr<const Routing> routing, absl::Time now, Replies& replies) {
  RefuseParked(absl::AbortedError(absl::StrCat("the job has been rolled back to step ",
                                               routing->view().start_version())),
               replies);
  routing_ = routing;
  open_routing_ = std::move(routing);
  former_routings_.clear();
  later_routings_.clear();
  outbox_.clear();
  to_report_.clear();
  verdicts_.clear();
  table_ = std::make_unique<ParameterTable>(job_, *routing_);
  gate_.reset();
  if (routing_->is_leader()) gate_.emplace(GateOptions(job_, *routing_));
  version_ = routing_->view().start_version();
  OpenStep(now);
}

void Shard::OpenStep(absl::Time now) {
  attempt_ = 0;
  closed_ = false;
  opened_ = now;
  const uint64_t step = version_ + 1;
  while (!later_routings_.empty() && later_routings_.front()->view().first_step() <= step) {
    GovernBy(std::move(later_routings_.front()));
    later_routings_.pop_front();
  }
  if (!gate_.has_value()) return;
  StepGate::Contributors contributors = PartsOfContributors(*open_routing_);
  // Whoever the newest view does not have any more takes no part, even if that view begins later.
  for (const Contributor& contributor : open_routing_->view().contributors()) {
    if (!SameSenders(contributor, *routing_)) contributors.erase(contributor.ordinal());
  }
  gate_->Open(step, std::move(contributors));
}

void Shard::GovernBy(std::shared_ptr<const Routing> routing) {
  former_routings_.push_front(std::exchange(open_routing_, std::move(routing)));
  if (former_routings_.size() > kFormerRoutings) former_routings_.pop_back();
}

void Shard::ChangeMembers(std::shared_ptr<const Routing> routing, absl::Time now,
                          Replies& replies) {
  routing_ = std::move(routing);
  std::vector<StepGate::Removal> gone;
  for (const Contributor& contributor : open_routing_->view().contributors()) {
    if (SameSenders(contributor, *routing_)) continue;
    // Of what it sent to other shards this one knows nothing.
    bool in_a_sum = routing_->shards() > 1;
    for (const auto& [id, slice] : table_->slices()) {
      for (const PartIdentity& part : slice.identities()) {
        in_a_sum = in_a_sum || (!slice.buffer() && part.first == contributor.ordinal());
      }
    }
    gone.push_back({contributor.ordinal(), in_a_sum && !table_->kept_apart()});
  }
  StepGate::Contributors come;
  if (routing_->view().first_step() <= version_ + 1) {
    come = PartsOfContributors(*routing_);
    GovernBy(routing_);
    later_routings_.clear();
  } else {
    later_routings_.push_back(routing_);
  }
  if (gate_.has_value()) Do(gate_->Change(gone, come), now, replies);
}

std::vector<const Routing*> Shard::open_routings() const {
  std::vector<const Routing*> routings = {open_routing_.get()};
  for (const auto& former : former_routings_) routings.push_back(former.get());
  return routings;
}

absl::Status Shard::StartSlice(uint32_t slice, const SliceStart& start, absl::Time now,
                               Replies& replies) {
  TableSlice* const found = table_ == nullptr ? nullptr : table_->Find(slice);
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", slice, " does not lie on shard ", ordinal_));
  }
  if (found->set()) return absl::OkStatus();
  if (absl::Status status = found->Start(version_, start); !status.ok()) return status;
  OnSliceStarted(now, replies);
  return absl::OkStatus();
}

absl::StatusOr<InitializeReply> Shard::Initialize(const InitializeRequest& request, absl::Time now,
                                                  Replies& replies) {
  const CallHeader& header = request.header();
  if (absl::Status status = Fence(header); !status.ok()) return status;
  if (!routing_->view().start_from().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("this job starts from the checkpoint ", routing_->view().start_from()));
  }
  const Contributor* first = routing_->FindContributor(0);
  if (first == nullptr || std::count(first->part_members().begin(), first->part_members().end(),
                                     header.member()) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "only contributor 0 gives the initial values, not ", routing_->Describe(header.member())));
  }
  for (const SliceData& data : request.slices()) {
    TableSlice* const slice = table_->Find(data.slice());
    if (slice == nullptr) return WrongSlice(header, data.slice());
    if (slice->set()) continue;
    if (data.dtype() != routing_->tensor(data.slice()).dtype()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the initial values of ", slice->name(), " have another element type"));
    }
    SliceStart start;
    start.values = data.data();
    if (absl::Status status = slice->Start(version_, start); !status.ok()) return status;
  }
  OnSliceStarted(now, replies);
  return InitializeReply();
}

void Shard::OnSliceStarted(absl::Time now, Replies& replies) {
  if (!table_->ready()) return;
  opened_ = now;
  AnswerPulls(replies);
}

std::vector<uint32_t> Shard::slices_not_set() const {
  return table_ == nullptr ? std::vector<uint32_t>() : table_->NotSet();
}

absl::StatusOr<std::vector<SliceSnapshot>> Shard::Snapshot(uint64_t version) const {
  if (!ready() || version > version_) {
    return absl::UnavailableError(
        absl::StrCat("shard ", ordinal_, " has version ", version_, ", not yet ", version));
  }
  if (version < version_) {
    return absl::AbortedError(
        absl::StrCat("shard ", ordinal_, " is at version ", version_, ", past ", version));
  }
  std::vector<SliceSnapshot> slices;
  for (const auto& [id, slice] : table_->slices()) slices.push_back(slice.Snapshot());
  return slices;
}

std::vector<ToShard> Shard::TakeOutbox() { return std::exchange(outbox_, {}); }

std::vector<Verdict> Shard::TakeVerdicts() { return std::exchange(to_report_, {}); }

absl::Status Shard::Failed() const {
  return absl::UnavailableError(
      absl::StrCat("the job has failed: ", cause_.has_value() ? cause_->text() : *error_));
}

void Shard::SetError(const absl::Status& status, Replies& replies) {
  if (error_.has_value()) return;
  error_ = absl::StrCat("step ", version_ + 1, " cannot be decided: ", status.message());
  RefuseParked(Failed(), replies);
}

void Shard::Fail(const FirstCause& cause, Replies& replies) {
  if (cause_.has_value()) return;
  cause_ = cause;
  RefuseParked(Failed(), replies);
  WhyFailedReply reply;
  *reply.mutable_cause() = cause;
  for (auto& parked : why_failed_) {
    replies.Add<WhyFailedReply>(std::move(parked.done), reply);
  }
  why_failed_.clear();
}

void Shard::Stop(Replies& replies) {
  stopped_ = true;
  const absl::Status status = FenceMember(CallHeader());
  RefuseParked(status, replies);
  for (auto& parked : why_failed_) replies.Add<WhyFailedReply>(std::move(parked.done), status);
  why_failed_.clear();
}

void Shard::RefuseParked(const absl::Status& status, Replies& replies) {
  for (auto& parked : completes_) replies.Add<CompleteReply>(std::move(parked.done), status);
  for (auto& parked : pulls_) replies.Add<PulledVersion>(std::move(parked.done), status);
  completes_.clear();
  pulls_.clear();
}

void Shard::Tick(absl::Time now, Replies& replies) {
  const auto expire = [&](auto& parked_calls, const auto& message) {
    for (auto it = parked_calls.begin(); it != parked_calls.end();) {
      if (it->deadline > now) {
        ++it;
        continue;
      }
      replies.Add(std::move(it->done), {absl::DeadlineExceededError(message(*it))});
      it = parked_calls.erase(it);
    }
  };
  expire(completes_, [&](const auto& parked) {
    return absl::StrCat("step ", parked.step, " is not decided: ", WhatIsMissing(now));
  });
  expire(pulls_, [&](const auto& parked) {
    return absl::StrCat("version ", parked.step, " is not there: ", WhatIsMissing(now));
  });
  expire(why_failed_, [](const auto&) { return std::string("the job has not failed"); });
}

absl::Time Shard::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& parked : completes_) next = std::min(next, parked.deadline);
  for (const auto& parked : pulls_) next = std::min(next, parked.deadline);
  for (const auto& parked : why_failed_) next = std::min(next, parked.deadline);
  return next;
}

}  // namespace parley
