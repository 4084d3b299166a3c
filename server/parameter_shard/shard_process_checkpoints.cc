// A shard's process and its checkpoints: what it reads on the main thread, and what it writes on
// the disk's.
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/job/job_file.h"
#include "common/utf8.h"
#include "server/parameter_shard/checkpoint_io.h"
#include "server/parameter_shard/shard_process.h"

namespace parley {
namespace {

bool Same(const CheckpointOrder& a, const CheckpointOrder& b) {
  return a.step() == b.step() && a.directory() == b.directory() && a.job_epoch() == b.job_epoch();
}

}  // namespace

void ShardProcess::FollowOrder(const WatchReply& state) {
  if (state.has_checkpoint() && Same(state.checkpoint(), begun_)) return;
  absl::MutexLock lock(&mu_);
  if (!order_.has_value()) ordered_at_ = timers_->Now();
  order_.reset();  // the former one was given up
  if (state.has_checkpoint()) order_ = state.checkpoint();
}

absl::Status ShardProcess::Load(const ClusterView& view) {
  auto routing = Routing::Make(view, membership_->ordinal());
  if (!routing.ok()) return routing.status();
  const absl::Time begin = timers_->Now();
  const auto on_disk = [this](uint64_t bytes) { membership_->OnDisk(bytes); };
  absl::Status loaded = LoadCheckpoint(
      *files_, view.start_from(), **routing,
      [&](uint32_t slice, const SliceStart& start) {
        on_disk(start.values.size());
        return shard_.StartSlice(slice, start, timers_->Now());
      },
      on_disk, [this, job_epoch = view.job_epoch()] { return LoadIsOff(job_epoch); });
  if (absl::IsCancelled(loaded)) {
    loading_since_.reset();
    log_->Info("loads the checkpoint no further", {{"folder", view.start_from()}});
    return absl::OkStatus();  // why is in the mail
  }
  if (absl::IsUnavailable(loaded) && LoadsAgain(loaded)) return absl::OkStatus();
  loading_since_.reset();
  if (!loaded.ok() && !absl::IsDataLoss(loaded)) return loaded;
  loaded_epoch_ = view.job_epoch();
  if (!loaded.ok()) {
    log_->Error(
        "the checkpoint is damaged; the job turns to an earlier one where there is one: see to "
        "the disk",
        {{"error", std::string(loaded.message())}});
    ReportReady(view.job_epoch(), view.start_version(), std::string(loaded.message()));
    return absl::OkStatus();
  }
  log_->Info("loaded the checkpoint",
             {{"folder", view.start_from()},
              {"version", absl::StrCat(view.start_version())},
              {"slices", absl::StrCat((*routing)->own_slices().size())},
              {"seconds", absl::StrCat(absl::ToDoubleSeconds(timers_->Now() - begin))}});
  return absl::OkStatus();
}

bool ShardProcess::LoadIsOff(uint64_t job_epoch) const {
  absl::MutexLock lock(&mu_);
  return mail_.cause.has_value() || mail_.signal != 0 || !mail_.error.empty() ||
         (mail_.state != nullptr && mail_.state->view().job_epoch() > job_epoch);
}

bool ShardProcess::LoadsAgain(const absl::Status& error) {
  const absl::Time now = timers_->Now();
  if (!loading_since_.has_value()) loading_since_ = now;
  if (now - *loading_since_ >= Patience(job_)) return false;
  log_->Warning("cannot read the checkpoint now: tries again",
                {{"error", std::string(error.message())},
                 {"seconds", absl::StrCat(absl::ToDoubleSeconds(now - *loading_since_))}});
  timers_->RunAt(now + liveness_ / 8, [this] { Post([](Mail& mail) { mail.load = true; }); });
  return true;
}

void ShardProcess::WriteOrderedCheckpoint() {
  CheckpointOrder order;
  std::shared_ptr<const Routing> routing;
  {
    absl::MutexLock lock(&mu_);
    if (!order_.has_value() || routing_ == nullptr || writing_) return;
    order = *order_;
    routing = routing_;
  }
  // Of another epoch: the news of it is on its way, or the order is off.
  if (order.job_epoch() != routing->view().job_epoch()) return;
  absl::StatusOr<std::vector<SliceSnapshot>> slices = shard_.Snapshot(order.step());
  // Not decided here yet: the news that it is brings us back.
  if (absl::IsUnavailable(slices.status())) return;
  {
    absl::MutexLock lock(&mu_);
    writing_ = true;
  }
  begun_ = order;
  disk_->RunAt(absl::InfinitePast(), [this, order, routing, slices = std::move(slices)] {
    WriteCheckpoint(order, *routing, slices);
  });
}

bool ShardProcess::IsWanted(const CheckpointOrder& order) const {
  absl::MutexLock lock(&mu_);
  return sends_ && !mail_.cause.has_value() && order_.has_value() && Same(*order_, order);
}

void ShardProcess::WriteCheckpoint(const CheckpointOrder& order, const Routing& routing,
                                   const absl::StatusOr<std::vector<SliceSnapshot>>& slices) {
  const absl::Time begin = timers_->Now();
  ReportCheckpointFileRequest report;
  report.set_step(order.step());
  absl::Status status = slices.status();
  if (slices.ok()) {
    auto file =
        WriteCheckpointFile(*files_, order.directory(), routing, *slices, [&](uint64_t bytes) {
          membership_->OnDisk(bytes);
          return IsWanted(order);
        });
    status = file.status();
    if (file.ok()) {
      *report.mutable_file() = *file;
      for (const auto& [tensor, steps] : OptimizerSteps(routing, *slices, IsClocked(job_))) {
        (*report.mutable_optimizer_steps())[tensor] = steps;
      }
    }
  }
  bool is_given_up = false;
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    is_given_up = !order_.has_value() || !Same(*order_, order);
    if (!is_given_up) order_.reset();
    mail_.wrote = true;
  }
  if (absl::IsCancelled(status)) {
    // Nobody waits for a word of it.
    log_->Info("writes its part of the checkpoint no further", {{"folder", order.directory()}});
    return;
  }
  const absl::Duration spent = timers_->Now() - begin;
  // Its folder may have been removed, or the job has gone back: no disk is to blame.
  if (status.ok() || !is_given_up) metrics_.OnCheckpoint(order.step(), spent, status.ok());
  if (status.ok()) {
    log_->Info("wrote its part of the checkpoint",
               {{"file", absl::StrCat(order.directory(), "/", report.file().name())},
                {"bytes", absl::StrCat(report.file().bytes())},
                {"seconds", absl::StrCat(absl::ToDoubleSeconds(spent))}});
  } else {
    report.set_error(ValidUtf8(status.message(), kMostReasonBytes));
    const LogPairs fields = {{"folder", order.directory()}, {"error", report.error()}};
    if (is_given_up) {
      log_->Info("the checkpoint was given up before its part was written", fields);
    } else {
      log_->Error(
          "could not write its part of the checkpoint; the one before stays valid, and the next "
          "is tried at its time: free or repair the disk until then",
          fields);
    }
  }
  caller_.Call<ReportCheckpointFileReply>(
      Retries("reporting a checkpoint file to the coordinator"),
      [this, report, epoch = order.job_epoch()](absl::Time deadline,
                                                Done<ReportCheckpointFileReply> done) mutable {
        *report.mutable_header() = HeaderOf(epoch);
        membership_->coordinator()->ReportCheckpointFile(report, deadline, std::move(done));
      },
      [this](absl::StatusOr<ReportCheckpointFileReply> reply) {
        if (reply.ok()) return;
        log_->Warning("the coordinator refused a checkpoint file",
                      {{"error", std::string(reply.status().message())}});
      });
}

}  // namespace parley
