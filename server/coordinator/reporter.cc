#include "server/coordinator/reporter.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "server/coordinator/first_cause.h"
#include "server/coordinator/targets.h"
#include "server/coordinator/view_change.h"

namespace parley {

Reporter::Reporter(Daemon& daemon, FileSystem& files, JobDirectory& directory)
    : daemon_(daemon),
      directory_(directory),
      metrics_(daemon.metrics()),
      history_(directory.history_file(), daemon.log()) {
  const std::string& folder = daemon.job().tensorboard();
  if (!folder.empty()) event_file_.emplace(files, directory.Resolved(folder), daemon.log());
}

void Reporter::Report(const LockedCoordinator& coordinator) {
  metrics_.Update(coordinator.Read(CoordinatorMetrics::Read));
  ReportCourse(coordinator);
  const auto [members, phase, epoch, contributors] =
      coordinator.Read([](const CoordinatorCore& core) {
        return std::tuple(core.Members(), core.phase(), core.view_epoch(),
                          LiveContributors(core.view()));
      });
  std::map<uint64_t, std::string> present;
  for (const Member& member : members) {
    present[member.id()] = MemberName(member.role(), member.ordinal());
    if (known_.count(member.id()) != 0) continue;
    daemon_.log().Info("joined", {{"member", MemberName(member.role(), member.ordinal())},
                                  {"address", member.address()},
                                  {"pid", absl::StrCat(member.pid())}});
  }
  for (const auto& [id, name] : known_) {
    if (present.count(id) != 0) continue;
    if (coordinator.Read([id = id](const auto& core) { return core.WasLetGo(id); })) {
      daemon_.log().Info("left, as it was told to", {{"member", name}});
    } else if (phase == FINISHED || phase == FAILED) {
      daemon_.log().Info("left", {{"member", name}});
    } else {
      const auto loss = coordinator.Read([id = id](const auto& core) { return core.HowLost(id); });
      LogPairs told = {{"member", name}, {"id", absl::StrCat(id)}};
      if (loss.has_value()) {
        told.push_back({"address", loss->address});
        told.push_back({"heard_of", FormatUtc(loss->heard_at + WallAheadOfSteady())});
        told.push_back({"why", loss->why});
      }
      daemon_.log().Warning("lost", told);
    }
  }
  if (present != known_ || !written_) WriteTargets(members);
  known_ = std::move(present);
  if (epoch != epoch_) {
    daemon_.log().Info("view", {{"view_epoch", absl::StrCat(epoch)},
                                {"contributors", absl::StrCat(contributors)}});
  }
  epoch_ = epoch;
  ReportScaling(coordinator);
  ReportGoingBack(coordinator);
  ReportCheckpoints(coordinator);
  ReportPreemption(coordinator);
  if (phase != phase_) daemon_.log().Info("phase", {{"phase", Phase_Name(phase)}});
  phase_ = phase;
}

void Reporter::ReportCourse(const LockedCoordinator& coordinator) {
  const absl::Time now = SteadyNow();
  std::vector<CourseEvent> events = course_.See(
      coordinator.Read([&](const CoordinatorCore& core) { return CourseNumbers::Read(core, now); }),
      now);
  for (CourseEvent& event : events) event.time += WallAheadOfSteady();
  history_.Add(events);
  if (event_file_) event_file_->Add(events);
}

void Reporter::ReportScaling(const LockedCoordinator& coordinator) {
  const uint32_t wanted =
      coordinator.Read([](const CoordinatorCore& core) { return core.wanted_workers(); });
  if (wanted_workers_ != 0 && wanted != wanted_workers_) {
    daemon_.log().Info(
        "the job wants another number of workers",
        {{"workers", absl::StrCat(wanted)}, {"before", absl::StrCat(wanted_workers_)}});
  }
  wanted_workers_ = wanted;
}

void Reporter::ReportGoingBack(const LockedCoordinator& coordinator) {
  const auto [job_epoch, steps_lost, folder, version, damaged] =
      coordinator.Read([](const CoordinatorCore& core) {
        return std::tuple(core.job_epoch(), core.steps_lost(), core.view().start_from(),
                          core.view().start_version(), core.damaged_checkpoints());
      });
  for (const std::string& one : damaged) {
    if (damaged_.insert(one).second) {
      daemon_.log().Error(
          "a checkpoint is damaged: the job turns to an earlier one; see to the "
          "disk, and look for more with `parley checkpoint verify`",
          {{"damaged", one}, {"checkpoint", folder}});
    }
  }
  if (job_epoch_ != 0 && job_epoch > job_epoch_) {
    daemon_.log().Warning("all go back to a checkpoint",
                          {{"checkpoint", folder},
                           {"step", absl::StrCat(version)},
                           {"steps_lost", absl::StrCat(steps_lost - steps_lost_)},
                           {"job_epoch", absl::StrCat(job_epoch)}});
  }
  job_epoch_ = job_epoch;
  steps_lost_ = steps_lost;
}

void Reporter::ReportCheckpoints(const LockedCoordinator& coordinator) {
  const auto [written, failed, interrupted, folder, step, duration, error] =
      coordinator.Read([](const CoordinatorCore& core) {
        const CheckpointPlan& plan = core.checkpoint();
        return std::tuple(plan.written(), plan.faults(), plan.interrupted(), plan.whole_folder(),
                          plan.whole_step(), plan.duration(), plan.error());
      });
  const std::string whole = folder.empty() ? "none" : folder;
  if (failed != checkpoints_failed_) {
    daemon_.log().Error(
        "a checkpoint failed; the one before stays valid, and the next is tried at "
        "its time: free or repair the disk until then",
        {{"error", error}, {"whole", whole}});
  }
  if (interrupted != checkpoints_interrupted_) {
    daemon_.log().Warning(
        "a checkpoint was given up, as a shard was lost; the one before stays valid",
        {{"why", error}, {"whole", whole}});
  }
  if (written != checkpoints_written_) {
    daemon_.log().Info("a checkpoint is whole",
                       {{"folder", folder},
                        {"step", absl::StrCat(step)},
                        {"seconds", absl::StrCat(absl::ToDoubleSeconds(duration))}});
  }
  checkpoints_failed_ = failed;
  checkpoints_interrupted_ = interrupted;
  checkpoints_written_ = written;
}

void Reporter::ReportPreemption(const LockedCoordinator& coordinator) {
  const auto [who, end] = coordinator.Read([](const CoordinatorCore& core) {
    return std::pair(core.preemption(), core.preemption_end());
  });
  if (!who.empty() && who != preemption_) {
    daemon_.log().Warning("told to end: the job goes on until a checkpoint is whole",
                          {{"by", who}, {"until", FormatUtc(end + WallAheadOfSteady())}});
  }
  preemption_ = who;
}

void Reporter::WriteTargets(const std::vector<Member>& members) {
  const absl::Status written = directory_.WriteTargets(
      TargetsJson(daemon_.job().name(), directory_.name(), daemon_.metrics().address(), members));
  if (!written.ok() && !failed_to_write_) {
    daemon_.log().Warning("targets.json could not be written; Prometheus will not find all",
                          {{"error", std::string(written.message())}});
  }
  written_ = written.ok();
  failed_to_write_ = !written.ok();
}

}  // namespace parley
