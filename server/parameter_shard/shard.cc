#include "server/parameter_shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

Shard::Shard(JobConfig job, uint32_t ordinal, ShardResources resources)
    : job_(std::move(job)),
      resources_(std::move(resources)),
      ordinal_(ordinal),
      updates_ahead_(job_.consistency().sync().update_ahead()) {}

absl::Status Shard::StartSlice(uint32_t slice, const SliceStart& start, absl::Time now,
                               Replies& replies) {
  TableSlice* const found = table_ == nullptr ? nullptr : table_->Find(slice);
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("slice ", slice, " does not lie on shard ", ordinal_));
  }
  // Until all are there, one that is read again may be of other bytes: those have been checked.
  if (ready()) return absl::OkStatus();
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
    ++counts_.initialized;
  }
  OnSliceStarted(now, replies);
  return InitializeReply();
}

void Shard::OnSliceStarted(absl::Time now, Replies& replies) {
  if (!table_->ready()) return;
  opened_ = now;
  if (clocked_ != nullptr) {
    AnswerClockedPulls(replies);
    return SettleClocks(now, replies);
  }
  AnswerPulls(replies);
  AnswerEnters(replies);
}

std::function<void()> Shard::TakeReservation() {
  if (reserved_ || !ready() || work_ != nullptr) return nullptr;
  if (clocked_ == nullptr && version_ == routing_->view().start_version()) return nullptr;
  reserved_ = true;
  return table_->Reservation();
}

std::vector<uint32_t> Shard::slices_not_set() const {
  return table_ == nullptr ? std::vector<uint32_t>() : table_->NotSet();
}

absl::StatusOr<std::vector<SliceSnapshot>> Shard::Snapshot(uint64_t version) {
  if (error_.has_value()) return Failed();  // a step that was begun may not have been carried out
  if (!ready() || version > version_) {
    return absl::UnavailableError(
        absl::StrCat("shard ", ordinal_, " has version ", version_, ", not yet ", version));
  }
  // A shard on which no slice lies keeps none of them.
  if (version == checkpoint_version_ && version != 0) return checkpoint_;
  if (version < version_) {
    return absl::AbortedError(
        absl::StrCat("shard ", ordinal_, " is at version ", version_, ", past ", version));
  }
  if (clocked_ != nullptr && !clocked_->table.unchanged()) {
    return absl::AbortedError(
        absl::StrCat("shard ", ordinal_, " has gone on since version ", version));
  }
  return SnapshotNewest();
}

absl::StatusOr<std::vector<SliceSnapshot>> Shard::SnapshotNewest() {
  if (absl::Status status = table_->Settle(); !status.ok()) return status;
  std::vector<SliceSnapshot> slices;
  for (const auto& [id, slice] : table_->slices()) slices.push_back(slice.Snapshot());
  return slices;
}

absl::Status Shard::KeepForCheckpoint() {
  absl::StatusOr<std::vector<SliceSnapshot>> slices = SnapshotNewest();
  if (!slices.ok()) return slices.status();
  checkpoint_version_ = version_;
  checkpoint_ = *std::move(slices);
  return absl::OkStatus();
}

void Shard::FollowCheckpoints(uint64_t asked, uint64_t ended, absl::Time now, Replies& replies) {
  if (ended >= checkpoint_version_) {
    checkpoint_version_ = 0;
    checkpoint_.clear();
  }
  if (!marks_.has_value()) return;
  marks_->Follow(asked, ended);
  // Nobody need be at work: then there is a barrier now.
  if (clocked_ != nullptr) SettleClocks(now, replies);
}

JobProgress Shard::Progress() const {
  JobProgress progress = decided_.progress();
  if (marks_.has_value() && marks_->newest().version() != 0) {
    *progress.mutable_mark() = marks_->newest();
  }
  return progress;
}

std::vector<ToShard> Shard::TakeOutbox() { return std::exchange(outbox_, {}); }

std::vector<Verdict> Shard::TakeVerdicts() { return std::exchange(to_report_, {}); }

absl::Status Shard::Failed() const {
  return absl::UnavailableError(
      absl::StrCat("the job has failed: ", cause_.has_value() ? cause_->text() : *error_));
}

void Shard::SetError(const absl::Status& status, Replies& replies) {
  if (error_.has_value()) return;
  error_ = work_ == nullptr
               ? absl::StrCat("step ", version_ + 1, " cannot be decided: ", status.message())
               : absl::StrCat("step ", version_, " cannot be carried out: ", status.message());
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
  for (auto& parked : enters_) replies.Add<EnterReply>(std::move(parked.done), status);
  for (auto& parked : pulls_) replies.Add<PulledVersion>(std::move(parked.done), status);
  completes_.clear();
  enters_.clear();
  pulls_.clear();
}

void Shard::Tick(absl::Time now, Replies& replies) {
  // To all the same, of which there may be thousands: put together once.
  std::optional<std::string> missing;
  const auto what_is_missing = [&] {
    if (!missing.has_value()) missing = WhatIsMissing(now);
    return *missing;
  };
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
    return clocked_ != nullptr
               ? absl::StrCat("contributor ", parked.contributor, " has completed clock ",
                              parked.step, " and waits for more to do: ", what_is_missing())
               : absl::StrCat("step ", parked.step, " is not decided: ", what_is_missing());
  });
  expire(enters_, [&](const auto& parked) {
    return clocked_ != nullptr
               ? absl::StrCat("contributor ", parked.contributor,
                              " has nothing to do yet: ", what_is_missing())
               : absl::StrCat("contributor ", parked.contributor, " has no part in step ",
                              version_ + 1, " yet: ", what_is_missing());
  });
  expire(pulls_, [&](const auto& parked) {
    const bool newest = clocked_ != nullptr && !parked.request.named() && parked.step != 0;
    return absl::StrCat(newest ? "the parameters for clock " : "version ", parked.step,
                        newest ? " are not ready: " : " is not there: ", what_is_missing());
  });
  expire(why_failed_, [](const auto&) { return std::string("the job has not failed"); });
}

absl::Time Shard::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& parked : completes_) next = std::min(next, parked.deadline);
  for (const auto& parked : enters_) next = std::min(next, parked.deadline);
  for (const auto& parked : pulls_) next = std::min(next, parked.deadline);
  for (const auto& parked : why_failed_) next = std::min(next, parked.deadline);
  return next;
}

}  // namespace parley
