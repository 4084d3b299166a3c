#ifndef PARLEY_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_
#define PARLEY_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/coordinator.h"

namespace parley {

// A job with its members in virtual time, for tests of CoordinatorCore: 10 s liveness, 60 s
// stall_timeout, batch 10, two epochs over 100 samples, unless a test says otherwise.
class CoordinatorFixture {
 public:
  // One process of the job.
  struct Process {
    Role role;
    CallHeader header;
    std::string address;
    int64_t pid = 0;
    uint32_t ordinal = 0;
    std::optional<absl::StatusOr<WatchReply>> watched;  // answer of its parked call
    absl::Time watched_at;
    uint64_t seen_revision = 0;
    bool alive = true;
  };

  static CoordinatorCore::Options DefaultOptions(uint32_t shards, uint32_t workers) {
    CoordinatorCore::Options options;
    options.job.set_name("digits");
    options.job.mutable_data()->set_batch(10);
    options.job.set_accumulate(1);
    options.job.set_epochs(2);
    options.job.set_seed(7);
    options.job.mutable_cluster()->set_shards(shards);
    options.job.mutable_cluster()->set_workers(workers);
    options.job.mutable_checkpoint()->set_at_end(true);
    options.fingerprint = "00000000000000aa";
    options.stall_timeout = absl::Seconds(60);
    options.gather_timeout = absl::Seconds(60);
    options.checkpoint_directory = "/job/checkpoints";
    return options;
  }

  CoordinatorFixture(uint32_t shards, uint32_t workers)
      : CoordinatorFixture(DefaultOptions(shards, workers)) {}

  explicit CoordinatorFixture(CoordinatorCore::Options options)
      : CoordinatorFixture(std::move(options), NotOpen()) {
    core.Open(1, "127.0.0.1:4000", now);
  }

  // Of a coordinator that is to take over.
  struct NotOpen {};
  CoordinatorFixture(CoordinatorCore::Options options, NotOpen)
      : options_(options), core(std::move(options)) {}

  JoinRequest JoinOf(const Process& process) const {
    JoinRequest request;
    *request.mutable_header() = process.header;
    request.set_role(process.role);
    request.set_address(process.address);
    request.set_host("node7");
    request.set_metrics_address("127.0.0.1:9" + std::to_string(process.pid));
    request.set_pid(process.pid);
    request.set_job_fingerprint("00000000000000aa");
    return request;
  }

  // A process that has not joined yet.
  Process& Start(Role role) {
    auto process = std::make_unique<Process>();
    process->role = role;
    process->pid = 100 + static_cast<int64_t>(processes.size());
    process->address = "127.0.0.1:" + std::to_string(4000 + process->pid);
    process->header.set_job("digits");
    process->header.set_incarnation(1000 + process->pid);
    processes.push_back(std::move(process));
    return *processes.back();
  }

  absl::Status Join(Process& process) {
    Replies replies;
    auto reply = core.Join(JoinOf(process), now, replies);
    if (!reply.ok()) return reply.status();
    process.header.set_member(reply->member());
    process.ordinal = reply->ordinal();
    return absl::OkStatus();
  }

  Process& StartAndJoin(Role role) {
    Process& process = Start(role);
    EXPECT_TRUE(Join(process).ok());
    return process;
  }

  // With pipelines: the first tensor is tied, on their first and last stage, where the other one
  // is.
  static RegisterModelRequest Model(uint32_t stages = 0) {
    RegisterModelRequest model;
    for (const auto& [name, rows] : {std::pair("fc1.weight", 512), std::pair("fc1.bias", 1)}) {
      TensorSpec* tensor = model.add_tensors();
      tensor->set_name(name);
      tensor->set_dtype(F32);
      tensor->add_shape(rows);
      tensor->add_shape(1024);
    }
    if (stages > 1) model.mutable_tensors(0)->add_stages(0);
    for (TensorSpec& tensor : *model.mutable_tensors()) {
      if (stages != 0) tensor.add_stages(stages - 1);
    }
    model.set_training_samples(100);
    model.set_test_samples(20);
    return model;
  }

  absl::Status Register(Process& process) {
    return Register(process, Model(options_.job.cluster().stages()));
  }
  absl::Status Register(Process& process, RegisterModelRequest model) {
    Replies replies;
    *model.mutable_header() = process.header;
    return core.RegisterModel(model, now, replies).status();
  }

  void Watch(Process& process, absl::Duration timeout = absl::Minutes(5)) {
    WatchRequest request;
    *request.mutable_header() = process.header;
    request.set_seen_revision(process.seen_revision);
    process.watched.reset();
    Replies replies;
    core.Watch(request, {now, now + timeout}, replies, [&](absl::StatusOr<SharedJobState> reply) {
      process.watched_at = now;
      if (!reply.ok()) return void(process.watched.emplace(reply.status()));
      process.seen_revision = (*reply)->revision();
      process.watched.emplace(**reply);
    });
  }

  // Everybody learns the present state: their headers get the epochs of the view.
  void LearnView() {
    for (auto& process : processes) {
      if (!process->alive) continue;
      process->seen_revision = 0;
      Watch(*process);
      ASSERT_TRUE(process->watched.has_value() && process->watched->ok());
      process->header.set_job_epoch((*process->watched)->view().job_epoch());
      process->header.set_view_epoch((*process->watched)->view().view_epoch());
    }
  }

  absl::Status Ready(Process& shard, uint64_t version = 0, const std::string& damage = "") {
    ReportReadyRequest request;
    *request.mutable_header() = shard.header;
    request.set_version(version);
    request.set_damage(damage);
    Replies replies;
    return core.ReportReady(request, now, replies).status();
  }

  absl::Status Heartbeat(Process& process, uint64_t progress = 0, uint64_t step = 0) {
    HeartbeatRequest request;
    request.set_progress(progress);
    request.set_step(step);
    return Heartbeat(process, std::move(request));
  }
  absl::Status Heartbeat(Process& process, HeartbeatRequest request) {
    *request.mutable_header() = process.header;
    Replies replies;
    return core.Heartbeat(request, now, replies).status();
  }

  // A full batch of each contributor of the view, or of each rank of it, from the present data
  // position.
  Verdict NextVerdict() const {
    const DataPosition& position = core.progress().position();
    uint64_t begin = 0;
    for (const SampleRange& range : position.used()) begin = std::max(begin, range.end());
    Verdict verdict;
    verdict.set_step(core.progress().step() + 1);
    verdict.set_outcome(Verdict::APPLY);
    verdict.set_data_epoch(position.epoch());
    verdict.set_view_epoch(core.view_epoch());
    for (const Contributor& contributor : core.view().contributors()) {
      if (contributor.part_members(0) == 0) continue;
      Share* share = verdict.add_shares();
      share->set_contributor(contributor.ordinal());
      const uint64_t end =
          std::min<uint64_t>(100, begin + 10 * std::max(1u, options_.job.cluster().group()));
      share->set_samples(end - begin);
      share->set_weight((end - begin) / 10.0);
      share->set_loss_sum(0.5 * (end - begin));
      if (begin == end) continue;
      share->add_ranges()->set_begin(begin);
      share->mutable_ranges(0)->set_end(end);
      begin = end;
    }
    return verdict;
  }

  absl::Status Report(Process& leader, const std::vector<Verdict>& verdicts,
                      const std::optional<JobProgress>& progress = std::nullopt) {
    ReportVerdictsRequest request;
    *request.mutable_header() = leader.header;
    for (const Verdict& verdict : verdicts) *request.add_verdicts() = verdict;
    if (progress) *request.mutable_progress() = *progress;
    Replies replies;
    return core.ReportVerdicts(request, now, replies).status();
  }

  absl::Status Finish(Process& worker, uint64_t last_step) {
    FinishRequest request;
    *request.mutable_header() = worker.header;
    request.set_last_step(last_step);
    PhaseSeconds* seconds = request.add_seconds();
    seconds->set_phase("forward");
    seconds->set_seconds(1.5);
    Replies replies;
    return core.Finish(request, now, replies).status();
  }

  ReportCheckpointFileRequest FileOf(const Process& shard, uint64_t step) const {
    ReportCheckpointFileRequest request;
    *request.mutable_header() = shard.header;
    request.set_step(step);
    request.mutable_file()->set_name("shard-" + std::to_string(shard.ordinal) + ".safetensors");
    request.mutable_file()->set_bytes(1000 + shard.ordinal);
    request.mutable_file()->set_crc32("0123abcd");
    request.mutable_file()->set_shard(shard.ordinal);
    return request;
  }

  absl::Status ReportFile(const ReportCheckpointFileRequest& request) {
    Replies replies;
    return core.ReportCheckpointFile(request, now, replies).status();
  }

  void Done(const FileWork& work, const absl::Status& status = absl::OkStatus()) {
    Replies replies;
    core.FileWorkDone(work, status, now, replies);
  }

  absl::Status Leave(Process& process) {
    LeaveRequest request;
    *request.mutable_header() = process.header;
    Replies replies;
    return core.Leave(request, now, replies).status();
  }

  // As it was told to.
  absl::Status Depart(Process& process) {
    LeaveRequest request;
    *request.mutable_header() = process.header;
    request.set_drained(true);
    Replies replies;
    return core.Leave(request, now, replies).status();
  }

  absl::StatusOr<SetWorkersReply> SetWorkers(uint32_t workers) {
    SetWorkersRequest request;
    request.set_workers(workers);
    Replies replies;
    return core.SetWorkers(request, now, replies);
  }

  absl::Status Drain(Role role, uint32_t ordinal) {
    DrainRequest request;
    request.set_role(role);
    request.set_ordinal(ordinal);
    Replies replies;
    return core.Drain(request, now, replies).status();
  }

  absl::StatusOr<StopReply> Stop(const std::string& reason = "") {
    StopRequest request;
    request.set_reason(reason);
    Replies replies;
    return core.Stop(request, now, replies);
  }

  absl::Status Fail(Process& process, const std::string& reason, bool preempted = false) {
    FailRequest request;
    *request.mutable_header() = process.header;
    request.set_reason(reason);
    request.set_preempted(preempted);
    Replies replies;
    return core.Fail(request, now, replies).status();
  }

  // Time goes on in ticks of liveness / 20; living processes send heartbeats every liveness / 4,
  // whose progress counters rise if `getting_on`.
  void Pass(absl::Duration duration, bool getting_on = true) {
    const absl::Time end = now + duration;
    while (now < end) {
      now += absl::Milliseconds(500);
      if (++ticks_ % 5 == 0) {
        for (auto& process : processes) {
          if (process->alive) (void)Heartbeat(*process, getting_on ? ticks_ : 0);
        }
      }
      Replies replies;
      core.Tick(now, replies);
    }
  }

  // All members join and register; the job is in PREPARING.
  void Gather() { Gather(Model(options_.job.cluster().stages())); }
  void Gather(const RegisterModelRequest& model) {
    for (uint32_t i = 0; i < options_.job.cluster().shards(); ++i) {
      shards.push_back(&StartAndJoin(SHARD));
    }
    const uint32_t pipelines = options_.job.cluster().workers();
    for (uint32_t i = 0; i < pipelines * options_.job.cluster().stages(); ++i) {
      stages.push_back(&StartAndJoin(STAGE));
    }
    for (uint32_t i = 0; i < pipelines; ++i) workers.push_back(&StartAndJoin(WORKER));
    for (Process* worker : workers) ASSERT_TRUE(Register(*worker, model).ok());
    for (Process* stage : stages) ASSERT_TRUE(Register(*stage, model).ok());
    ASSERT_EQ(core.phase(), PREPARING);
    LearnView();
  }

  void Train(uint64_t version = 0) {
    Gather();
    for (Process* shard : shards) ASSERT_TRUE(Ready(*shard, version).ok());
    ASSERT_EQ(core.phase(), TRAINING);
  }

  GetStatusReply Status() const { return *core.GetStatus({}, now); }

  const CoordinatorCore::Options options_;
  absl::Time now = absl::FromUnixMillis(1'795'230'000'123);
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<Process*> shards;   // that Gather has started, by ordinal
  std::vector<Process*> stages;   // likewise
  std::vector<Process*> workers;  // likewise
  CoordinatorCore core;

 private:
  uint64_t ticks_ = 0;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_
