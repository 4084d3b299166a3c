// What must hold in a simulated job, whatever happens.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/job/consistency.h"
#include "server/coordinator/evaluations.h"
#include "tests/simulation/job_simulation.h"

namespace parley {

bool JobSimulation::CheckParameters(const std::string& who, const Session& session,
                                    uint64_t version, bool at_barrier) {
  if (IsClocked(options_.job)) {
    // Between barriers each reads something else.
    if (!at_barrier || !IsCurrent(session.epochs().job)) return true;
    const bool exact = clocked_.applied() == clocked_.AppliedBy(verdicts_);
    const std::vector<float>* const replayed = exact ? replay_.At(version) : nullptr;
    const auto broken =
        clocked_.CheckNamed(session, replayed == nullptr ? std::vector<float>() : *replayed);
    if (broken.has_value()) Broken(absl::StrCat(who, " reads ", *broken));
    return !broken.has_value();
  }
  if (!IsCurrent(session.epochs().job)) return true;
  // One that has come back may read a version whose verdict nobody has told yet.
  const std::vector<float>* const replayed = replay_.At(version);
  if (replayed == nullptr) return true;
  const std::vector<float>& expected = *replayed;
  size_t element = 0;
  for (size_t tensor = 0; tensor < options_.model.tensors(); ++tensor) {
    const absl::Span<const std::byte> values = session.parameter(tensor);
    for (size_t i = 0; i < values.size() / sizeof(float); ++i, ++element) {
      float value = 0;
      std::memcpy(&value, values.data() + i * sizeof(float), sizeof(float));
      if (value == expected[element]) continue;
      Broken(absl::StrCat(who, " reads ", value, " for element ", element, " of version ", version,
                          ", the verdicts make ", expected[element]));
      return false;
    }
  }
  return true;
}

bool JobSimulation::IsCurrent(uint64_t job_epoch) {
  if (job_epoch > job_epoch_) {
    // Whoever knows of it was told, and before that it was recorded.
    // (A fault of the disk hits whoever reads.)
    ClusterView view;
    for (int i = 0; i < 100 && view.job_epoch() < job_epoch; ++i) view = Recorded().view();
    if (view.job_epoch() < job_epoch) {
      Broken(absl::StrCat("job_epoch ", job_epoch, " is told of, but not recorded"));
      return false;
    }
    job_epoch_ = view.job_epoch();
    const uint64_t back_to = view.start_version();
    verdicts_.erase(verdicts_.upper_bound(back_to), verdicts_.end());
    replay_.RollBack(back_to);
    checkpoints_.RollBack(back_to);
    if (IsClocked(options_.job)) {
      clocked_.RollBack(back_to);
      contributions_.RollBack();
    }
    ++happened_["went back"];
  }
  return job_epoch == job_epoch_;
}

void JobSimulation::Record(const std::string& who, const Verdict& verdict, uint64_t job_epoch) {
  if (!IsCurrent(job_epoch)) return;
  Verdict said = verdict;
  said.clear_none();
  if (verdict.outcome() == Verdict::RETRY) {
    ++happened_["step retried"];
    return;
  }
  const auto [it, is_new] = verdicts_.emplace(verdict.step(), said);
  if (!is_new && it->second.SerializeAsString() != said.SerializeAsString()) {
    Broken(absl::StrCat(who, " has another verdict of step ", verdict.step(), " than the others"));
  }
  if (!is_new) return;
  if (const auto wrong = replay_.Add(said); wrong.has_value()) Broken(*wrong);
  const uint32_t backup = options_.job.consistency().sync().backup();
  const uint32_t quorum = options_.job.cluster().workers() - backup;
  if (!IsClocked(options_.job) && NobodyIsLost() && options_.scalings == 0 &&
      static_cast<uint32_t>(said.shares_size()) < quorum) {
    Broken(absl::StrCat("step ", said.step(), " counts ", said.shares_size(),
                        " contributors, the quorum is ", quorum));
  }
}

bool JobSimulation::CameTooLate(std::string_view end) {
  // In all the time that it tries to join, there may be a coordinator for some seconds only.
  // Or the job wants fewer workers than there are by now.
  if ((CoordinatorsMayGo() || options_.scalings > 0) &&
      end.find("took us in within") != std::string_view::npos) {
    ++happened_["was not taken in"];
    return true;
  }
  // The operator has started more than are missing: while there was no coordinator nobody knew of
  // those that were on their way. Where no place can become free they are told at once.
  if (CoordinatorsMayGo() && options_.scalings > 0 &&
      end.find("members of this role already") != std::string_view::npos) {
    ++happened_["was one too many"];
    return true;
  }
  // A coordinator has gone in order: nobody has taken it in, or, where it was stopped or cut off
  // for longer than its lease, nobody can tell it how the job ended. (One that was started since
  // then has begun another job: who joins that one waits in vain.)
  const bool over = Recorded().over() ||
                    std::any_of(coordinators_.begin(), coordinators_.end(),
                                [](const auto& coordinator) { return coordinator->end().ok(); });
  if (!over) return false;
  for (const char* why :
       {"no coordinator at", "has not answered since", "shard 0 has not joined"}) {
    if (end.find(why) != std::string_view::npos) return true;
  }
  return false;
}

bool JobSimulation::FailedAlike() {
  std::set<std::string> causes;
  const auto add = [&](const std::string& cause) {
    // One that comes too late is told so, with the cause.
    const size_t told = cause.find(" is FAILED: ");
    causes.insert(told == std::string::npos ? cause : cause.substr(told + 12));
  };
  for (const auto& shard : shards_) {
    if (shard->killed) continue;
    add(shard->end.has_value() ? shard->end->last_line : "nothing");
  }
  for (const auto& worker : workers_) {
    if (worker->drained) continue;
    if (worker->end.ok()) return false;
    if (absl::IsCancelled(worker->end) || CameTooLate(worker->end.ToString())) continue;
    add(std::string(worker->end.message()));
  }
  return causes.size() == 1 && causes.begin()->find("has not been heard of") != std::string::npos;
}

void JobSimulation::CheckEvaluations(const CoordinatorState& recorded) {
  std::map<uint64_t, uint64_t> ordered;  // version -> epoch
  for (const auto& [step, verdict] : verdicts_) {
    if (!verdict.has_evaluation()) continue;
    ordered[verdict.evaluation().version()] = verdict.evaluation().epoch();
  }
  if (IsClocked(options_.job)) {
    // The barriers at the end of a data epoch, and of the job.
    uint64_t epoch = 0;
    for (const auto& [version, position] : PositionsAfter(verdicts_, options_.samples)) {
      if (position.used_size() == 0 || version == verdicts_.rbegin()->first) {
        ordered[version] = ++epoch;
      }
    }
  }
  evaluations_ordered_ = static_cast<int>(ordered.size());
  if (!verdicts_.empty() && ordered.count(verdicts_.rbegin()->first) == 0) {
    Broken("the last version was not to be evaluated");
  }
  Evaluations evaluations;
  evaluations.Start(options_.job.cluster().workers(), options_.test_samples);
  evaluations.Read(recorded);
  for (const Evaluation& whole : evaluations.Whole()) {
    const auto found = ordered.find(whole.version());
    if (found == ordered.end() || found->second != whole.epoch() ||
        whole.samples() != options_.test_samples) {
      Broken(absl::StrCat("nobody ordered the evaluation of version ", whole.version()));
      continue;
    }
    ordered.erase(found);
  }
  evaluations_left_out_ = static_cast<int>(ordered.size());
  if (options_.all_evaluations_whole && !ordered.empty()) {
    Broken(absl::StrCat("the evaluation of version ", ordered.begin()->first, " is not whole"));
  }
}

int JobSimulation::CheckWorkersEnded() {
  int finished = 0;
  for (const auto& worker : workers_) {
    finished += worker->end.ok() && !worker->drained;
    // One that comes when the job is over has nothing to do.
    if (worker->end.ok() || absl::IsCancelled(worker->end) || CameTooLate(worker->end.ToString()))
      continue;
    if (worker->end.message().find("FINISHED") != absl::string_view::npos) continue;
    Broken(absl::StrCat(worker->process->name(), " ended with ", worker->end.ToString()));
  }
  return finished;
}

void JobSimulation::CheckNobodyCountsAsLost(const CoordinatorState& recorded) {
  for (const LoggedMember& member : recorded.members()) {
    if (!member.fenced()) continue;
    Broken(absl::StrCat("member ", member.member().id(), " counts as lost, where nobody is"));
  }
}

void JobSimulation::CheckShardsEnded() {
  for (const auto& shard : shards_) {
    if (shard->killed) continue;
    if (shard->end.has_value() && shard->end->code == kFinished) continue;
    if (shard->end.has_value() && CameTooLate(shard->end->last_line)) continue;
    // As a worker that comes when the job is over.
    if (shard->end.has_value() && shard->end->last_line.find("is FINISHED") != std::string::npos) {
      continue;
    }
    Broken(absl::StrCat(shard->process->name(), " ended with ",
                        shard->end.has_value() ? shard->end->last_line : "nothing"));
  }
}

void JobSimulation::CheckLastCheckpoint() {
  const auto folder = ResolveCheckpoint(files_, "/job/checkpoints");
  const auto manifest = folder.ok() ? ReadManifest(files_, *folder) : folder.status();
  if (!manifest.ok() || manifest->step() != verdicts_.size() ||
      manifest->files_size() != static_cast<int>(options_.job.cluster().shards())) {
    Broken(absl::StrCat("the checkpoint is not whole: ", manifest.status().ToString()));
  }
}

void JobSimulation::EndOtherChecks() {
  checkpoints_.End(PositionsAfter(verdicts_, options_.samples));
  for (const std::string& what : checkpoints_.broken()) Broken(what);
  if (checkpoints_.whole() != 0) happened_["checkpoint"] = static_cast<int>(checkpoints_.whole());
  for (const std::string& what : clocked_.broken()) Broken(what);
  for (const auto& [what, times] : clocked_.happened()) happened_[what] += times;
}

void JobSimulation::CheckCoordinatorsEnded() {
  for (const auto& coordinator : coordinators_) {
    // One that did not start, or has a successor, says so and goes.
    const absl::Status& end = coordinator->end();
    if (coordinator->generation() > 1) ++happened_["took over"];
    if (coordinator->has_ruled() && absl::IsUnavailable(end)) ++happened_["lost the rule"];
    if (absl::IsAlreadyExists(end)) ++happened_["was refused"];
    if (!coordinator->process()->ended() || end.ok() || absl::IsUnavailable(end) ||
        absl::IsAlreadyExists(end) || absl::IsAborted(end)) {
      continue;
    }
    Broken(absl::StrCat(coordinator->process()->name(), " ended with ", end.ToString()));
  }
}

void JobSimulation::CheckStepsCounted() {
  if (!verdicts_.empty() && verdicts_.rbegin()->first != verdicts_.size()) {
    Broken(absl::StrCat(verdicts_.size(), " verdicts of ", verdicts_.rbegin()->first, " steps"));
  }
  // One that starts when all is over begins another job.
  const auto last = std::find_if(coordinators_.begin(), coordinators_.end(),
                                 [](const auto& coordinator) { return coordinator->end().ok(); });
  if (last == coordinators_.end()) return;
  const uint64_t reported =
      (*last)->core().Read([](const CoordinatorCore& core) { return core.progress().step(); });
  if (reported != verdicts_.size()) {
    Broken(
        absl::StrCat("the coordinator counts ", reported, " steps, there were ", verdicts_.size()));
  }
}

void JobSimulation::CheckSamplesUsedOnce() {
  std::map<uint64_t, std::map<uint64_t, int>> used;  // by epoch, then position
  for (const auto& [step, verdict] : verdicts_) {
    for (const Share& share : verdict.shares()) {
      for (const SampleRange& range : share.ranges()) {
        for (uint64_t i = range.begin(); i < range.end(); ++i) ++used[verdict.data_epoch()][i];
      }
    }
  }
  for (const auto& [epoch, positions] : used) {
    const bool over = epoch + 1 < used.size() || options_.job.has_epochs();
    if (over && positions.size() != options_.samples) {
      Broken(absl::StrCat("data epoch ", epoch, " used ", positions.size(), " samples of ",
                          options_.samples));
    }
    for (const auto& [position, times] : positions) {
      if (times == 1) continue;
      Broken(absl::StrCat("sample ", position, " of data epoch ", epoch, " was used ", times,
                          " times"));
    }
  }
}

void JobSimulation::CheckEnd() {
  failed_ = FailedAlike();
  if (failed_) return;
  if (!AllEnded()) {
    Broken(absl::StrCat("after ", absl::FormatDuration(world_.now() - start_), ", ",
                        world_.events_run(), " events and ", verdicts_.size(),
                        " steps not all processes have ended"));
  }
  const int finished = CheckWorkersEnded();
  // All may have been killed after the last step.
  const CoordinatorState recorded = Recorded();
  const bool job_finished = recorded.phase() == FINISHED;
  if (finished == 0 && !job_finished) Broken("no worker has finished");
  if (options_.scalings > 0 && AllStay()) CheckNobodyCountsAsLost(recorded);
  CheckShardsEnded();
  if (job_finished && options_.job.checkpoint().at_end()) CheckLastCheckpoint();
  EndOtherChecks();
  CheckCoordinatorsEnded();
  CheckStepsCounted();
  CheckEvaluations(recorded);
  CheckSamplesUsedOnce();
}

}  // namespace parley
