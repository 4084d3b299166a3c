// A coordinator that takes over answers as the one before would have done. The seed is in the
// message of a failure.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

constexpr uint32_t kShards = 2;
constexpr absl::Duration kLiveness = absl::Seconds(10);

struct Process {
  Role role;
  CallHeader header;
  std::string address;
  bool alive = true;
};

// What was said, without what a takeover may change: since when somebody has been silent.
std::string Normalised(std::string text) {
  for (size_t at = text.find("since "); at != std::string::npos; at = text.find("since ", at + 1)) {
    const size_t end = text.find_first_of(");", at);
    if (end != std::string::npos) text.erase(at, end - at);
  }
  return text;
}

// Calls at random, over a coordinator that is replaced now and then or, as the measure, pauses as
// long each time. What is called depends on the seed and on the answers alone.
class Walk {
 public:
  Walk(uint64_t seed, bool restarts, uint32_t stages = 0)
      : random_(seed), restarts_(restarts), options_(OptionsOf(random_, stages)) {
    core_ = std::make_unique<CoordinatorCore>(options_);
    core_->Open(1, "127.0.0.1:4000", now_);
    for (uint32_t i = 0; i < kShards; ++i) Start(SHARD);
    for (uint32_t i = 0; i < options_.job.cluster().workers(); ++i) Start(WORKER);
    for (uint32_t i = 0; i < options_.job.cluster().workers() * stages; ++i) Start(STAGE);
    for (int step = 0; step < 250; ++step) {
      if (random_() % 12 == 0) Pause();
      Act();
    }
  }

  const std::vector<std::string>& transcript() const { return transcript_; }
  // In which phases the coordinator was replaced, or paused.
  const std::map<Phase, int>& pauses() const { return pauses_; }
  // Changes that were not announced as such.
  const std::string& silent_change() const { return silent_change_; }

 private:
  static CoordinatorCore::Options OptionsOf(std::mt19937_64& random, uint32_t stages) {
    const uint32_t workers = 1 + random() % 3;
    auto options = CoordinatorFixture::DefaultOptions(kShards, workers);
    options.job.mutable_cluster()->set_min_workers(1);
    options.job.mutable_consistency()->mutable_sync()->set_lost_worker(random() % 2 ? GO_ON : WAIT);
    options.job.mutable_checkpoint()->set_at_end(random() % 4 != 0);
    options.job.set_epochs(1 + random() % 2);
    if (random() % 2 == 0) options.autonomy = absl::Minutes(1);
    options.preemption_grace = absl::Seconds(25);
    options.job.mutable_cluster()->set_stages(stages);
    if (stages != 0) options.job.set_max_restarts(1);
    return options;
  }

  Process& Start(Role role) {
    auto process = std::make_unique<Process>();
    process->role = role;
    process->address = absl::StrCat("127.0.0.1:", 5000 + processes_.size());
    process->header.set_job("digits");
    process->header.set_incarnation(1 + random_());
    processes_.push_back(std::move(process));
    Join(*processes_.back());
    return *processes_.back();
  }

  void Join(Process& process) {
    JoinRequest request;
    *request.mutable_header() = process.header;
    request.set_role(process.role);
    request.set_address(process.address);
    const auto reply = Call("join", &CoordinatorCore::Join, request);
    if (reply.ok()) process.header.set_member(reply->member());
  }

  // Calls, and writes down what was answered and how the job is then.
  template <class Request, class Reply>
  absl::StatusOr<Reply> Call(const std::string& what,
                             absl::StatusOr<Reply> (CoordinatorCore::*method)(const Request&,
                                                                              absl::Time, Replies&),
                             const Request& request) {
    absl::StatusOr<Reply> reply = absl::UnknownError("");
    Do(what, [&] {
      Replies replies;
      reply = (core_.get()->*method)(request, now_, replies);
      return reply.ok() ? reply->SerializeAsString() : reply.status().ToString();
    });
    return reply;
  }

  template <class Action>
  void Do(const std::string& what, Action action) {
    const CoordinatorState before = Recorded();
    const uint64_t revision = core_->durable_revision();
    const std::string answer = action();
    if (core_->durable_revision() == revision &&
        !google::protobuf::util::MessageDifferencer::Equals(Recorded(), before)) {
      silent_change_ = what;
    }
    GetStatusReply status = *core_->GetStatus({}, now_);
    status.clear_samples_per_second();
    status.set_what_is_missing(Normalised(status.what_is_missing()));
    status.mutable_cause()->set_text(Normalised(status.cause().text()));
    for (MemberStatus& member : *status.mutable_members()) {
      member.clear_step();
      member.clear_seconds_since_heartbeat();
    }
    transcript_.push_back(absl::StrCat(
        what, ": ", Normalised(answer), " ", Phase_Name(core_->phase()), " ",
        core_->checkpoint().order() ? "order" : "", core_->has_file_work() ? "work" : "",
        status.SerializeAsString(), core_->view().SerializeAsString()));
  }

  // What a record holds but for progress, which need not be recorded each time.
  CoordinatorState Recorded() const {
    CoordinatorState state = core_->DurableState();
    state.clear_progress();
    return state;
  }

  void Pause() {
    now_ += kLiveness;
    ++pauses_[core_->phase()];
    if (restarts_) {
      const CoordinatorState state = core_->DurableState();
      core_ = std::make_unique<CoordinatorCore>(options_);
      const absl::Status restored = core_->Restore(state);
      ASSERT_TRUE(restored.ok()) << restored << state.DebugString();
      core_->Open(1, "127.0.0.1:4000", now_);
    }
    // All but the one that may be silent are heard of.
    Tick();
    for (auto& process : processes_) Heartbeat(*process);
    Tick();
    Do("after a pause", [&] { return ""; });
  }

  void Tick() {
    Replies replies;
    core_->Tick(now_, replies);
  }

  void Heartbeat(Process& process) {
    if (!process.alive) return;
    HeartbeatRequest request;
    *request.mutable_header() = process.header;
    request.set_progress(++beats_);
    Replies replies;
    (void)core_->Heartbeat(request, now_, replies);
  }

  template <class Request>
  Request From(const Process& process) {
    Request request;
    *request.mutable_header() = process.header;
    request.mutable_header()->set_job_epoch(1);
    request.mutable_header()->set_view_epoch(core_->view_epoch());
    return request;
  }

  Process& AnyWorker() {  // or stage
    const size_t workers = processes_.size() - kShards;
    return *processes_[kShards + random_() % workers];
  }
  uint32_t Stages() const { return options_.job.cluster().stages(); }
  Process& AnyShard() { return *processes_[random_() % kShards]; }

  void Act() {
    const uint64_t what = random_() % 24;
    Process& worker = AnyWorker();
    if (what < 4) {
      auto model = CoordinatorFixture::Model(Stages());
      *model.mutable_header() = worker.header;
      (void)Call("register", &CoordinatorCore::RegisterModel, model);
    } else if (what < 7) {
      (void)Call("ready", &CoordinatorCore::ReportReady, From<ReportReadyRequest>(AnyShard()));
    } else if (what < 12) {
      ReportVerdicts();
    } else if (what < 14) {
      auto request = From<ReportEvaluationRequest>(worker);
      request.mutable_part()->set_version(core_->progress().step());
      request.mutable_part()->set_samples(random_() % 2 == 0 ? 10 : 20);
      (void)Call("evaluation", &CoordinatorCore::ReportEvaluation, request);
    } else if (what < 16) {
      if (core_->progress().position().epoch() < options_.job.epochs()) return;
      auto request = From<FinishRequest>(worker);
      request.set_last_step(core_->progress().step());
      request.add_seconds()->set_phase("forward");
      request.mutable_seconds(0)->set_seconds(0.1);
      (void)Call("finish", &CoordinatorCore::Finish, request);
    } else if (what < 18) {
      DoFileWork();
    } else if (what < 20) {
      ReportFile();
    } else if (what == 20) {
      if (processes_.size() > 9 + 4 * Stages()) return;
      Process& fresh = Start(Stages() != 0 && random_() % 2 == 0 ? STAGE : WORKER);
      if (random_() % 3 == 0) {
        fresh.address = worker.address;
        fresh.header.set_incarnation(1 + random_());
        Join(fresh);
      }
    } else if (what == 21) {
      // One at a time: of several the one silent for longest is named, which is forgotten.
      for (auto& process : processes_) process->alive = true;
      worker.alive = random_() % 2 == 0;
      now_ += absl::Seconds(random_() % 2 == 0 ? 1 : 9);
      for (auto& process : processes_) Heartbeat(*process);
      Do("time", [&] {
        Tick();
        return "";
      });
    } else if (what == 22) {
      if (random_() % 8 == 0) {
        auto request = From<FailRequest>(worker);
        request.set_reason("gives up");
        // Told to end: then the job goes on for a checkpoint.
        request.set_preempted(random_() % 4 != 0);
        request.set_checkpoint_first(request.preempted());
        (void)Call("fail", &CoordinatorCore::Fail, request);
      } else if (core_->phase() == FINISHED || core_->phase() == FAILED) {
        (void)Call("leave", &CoordinatorCore::Leave, From<LeaveRequest>(worker));
      }
    } else {
      Join(worker);
    }
  }

  void ReportVerdicts() {
    if (core_->view_epoch() == 0 || core_->progress().position().epoch() >= options_.job.epochs()) {
      return;
    }
    auto request = From<ReportVerdictsRequest>(*processes_[0]);
    Verdict& verdict = *request.add_verdicts();
    verdict.set_step(core_->progress().step() + 1);
    verdict.set_attempt(attempt_);
    verdict.set_outcome(random_() % 4 == 0 ? Verdict::RETRY : Verdict::APPLY);
    if (verdict.outcome() == Verdict::RETRY) {
      ++attempt_;
    } else {
      attempt_ = 0;
      const DataPosition& position = core_->progress().position();
      const uint64_t begin = position.used_size() == 0 ? 0 : position.used(0).end();
      verdict.set_data_epoch(position.epoch());
      Share& share = *verdict.add_shares();
      share.add_ranges()->set_begin(begin);
      share.mutable_ranges(0)->set_end(begin + 10);
      share.set_samples(10);
      share.set_loss_sum(static_cast<double>(random_() % 100));
    }
    (void)Call("verdict", &CoordinatorCore::ReportVerdicts, request);
    if (random_() % 3 == 0) (void)Call("again", &CoordinatorCore::ReportVerdicts, request);
  }

  void DoFileWork() {
    // One whose outcome was not told is to be done again.
    if (!core_->has_file_work() || random_() % 3 == 0) return;
    for (const FileWork& work : core_->TakeFileWork()) {
      Do("file work", [&] {
        Replies replies;
        const bool fails = random_() % 16 == 0;
        core_->FileWorkDone(work, fails ? absl::InternalError("no space left") : absl::OkStatus(),
                            now_, replies);
        // What is only to be removed is not recorded: the next removal finds it.
        for (const FileWork& removal : core_->TakeFileWork()) {
          core_->FileWorkDone(removal, absl::OkStatus(), now_, replies);
        }
        return work.folder + work.manifest.data_position().SerializeAsString();
      });
    }
  }

  void ReportFile() {
    const uint32_t shard = static_cast<uint32_t>(random_() % kShards);
    auto request = From<ReportCheckpointFileRequest>(*processes_[shard]);
    request.set_step(core_->progress().step());
    request.mutable_file()->set_name(absl::StrCat("shard-", shard, ".safetensors"));
    request.mutable_file()->set_shard(shard);
    request.mutable_file()->set_bytes(random_() % 16 == 0 ? 2 : 1);
    (*request.mutable_optimizer_steps())[absl::StrCat("t", shard)] = 3;
    (void)Call("file", &CoordinatorCore::ReportCheckpointFile, request);
  }

  std::mt19937_64 random_;
  const bool restarts_;
  const CoordinatorCore::Options options_;
  std::unique_ptr<CoordinatorCore> core_;
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::string> transcript_;
  std::string silent_change_;
  std::map<Phase, int> pauses_;
  uint64_t beats_ = 0;
  uint32_t attempt_ = 0;
};

void WalkBothWays(uint64_t seed, uint32_t stages, std::map<Phase, int>& replaced) {
  const Walk straight(seed, /*restarts=*/false, stages);
  const Walk restarted(seed, /*restarts=*/true, stages);
  ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  ASSERT_EQ(straight.silent_change(), "") << "seed " << seed << ": not announced as durable";
  for (size_t i = 0; i < straight.transcript().size(); ++i) {
    ASSERT_EQ(straight.transcript()[i], restarted.transcript()[i]) << "seed " << seed;
  }
  for (const auto& [phase, times] : restarted.pauses()) replaced[phase] += times;
}

TEST(CoordinatorRestart, WithPipelinesAnswersAsTheOneBeforeWouldHaveDone) {
  std::map<Phase, int> replaced;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    WalkBothWays(seed, 1 + seed % 2, replaced);
    if (HasFatalFailure()) return;
  }
  for (Phase phase : {PREPARING, TRAINING, SAVING, FAILED}) {
    EXPECT_GT(replaced[phase], 10) << Phase_Name(phase) << ": too few takeovers there";
  }
}

TEST(CoordinatorRestart, AnswersAsTheOneBeforeWouldHaveDone) {
  std::map<Phase, int> replaced;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    WalkBothWays(seed, /*stages=*/0, replaced);
    if (HasFatalFailure()) return;
  }
  for (Phase phase : {GATHERING, PREPARING, TRAINING, SAVING, FINISHED, FAILED}) {
    EXPECT_GT(replaced[phase], 10) << Phase_Name(phase) << ": too few takeovers there";
  }
}

// A job with a view, trained for a while.
CoordinatorState Recorded(CoordinatorFixture& job) {
  job.Train();
  EXPECT_TRUE(job.Report(*job.shards[0],
                         {
                             job.NextVerdict(),
                         })
                  .ok());
  return job.core.DurableState();
}

TEST(CoordinatorRestart, EveryMemberHasAFullLeaseFirst) {
  CoordinatorFixture job(1, 2);
  const CoordinatorState state = Recorded(job);
  CoordinatorCore core(job.options_);
  ASSERT_TRUE(core.Restore(state).ok());
  const absl::Time start = job.now + absl::Minutes(5);
  core.Open(2, "127.0.0.1:4001", start);
  Replies replies;
  for (absl::Time now = start; now < start + kLiveness; now += kLiveness / 20) {
    core.Tick(now, replies);
    ASSERT_EQ(core.phase(), TRAINING);
  }
  core.Tick(start + kLiveness, replies);
  EXPECT_EQ(core.phase(), FAILED);
}

TEST(CoordinatorRestart, WhoWatchesIsToldAtOnceAndInANewRevision) {
  CoordinatorFixture job(1, 1);
  const CoordinatorState state = Recorded(job);
  CoordinatorCore core(job.options_);
  ASSERT_TRUE(core.Restore(state).ok());
  core.Open(2, "127.0.0.1:4001", job.now);
  WatchRequest request;
  *request.mutable_header() = job.workers[0]->header;
  request.set_seen_revision(job.core.revision());
  std::optional<WatchReply> told;
  {
    Replies replies;
    core.Watch(request, {job.now, job.now + kLiveness}, replies,
               [&](absl::StatusOr<SharedJobState> reply) { told = **reply; });
  }
  ASSERT_TRUE(told.has_value());
  EXPECT_GT(told->revision(), job.core.revision());
  EXPECT_EQ(told->generation(), 2u);
  EXPECT_EQ(told->view().view_epoch(), 1u);
}

TEST(CoordinatorRestart, TheStepLeaderTellsWhatHappenedMeanwhile) {
  CoordinatorFixture job(1, 1);
  const CoordinatorState state = Recorded(job);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
  JobProgress progress;
  progress.set_step(job.core.progress().step());
  *progress.mutable_position() = job.core.progress().position();
  CoordinatorCore core(job.options_);
  ASSERT_TRUE(core.Restore(state).ok());
  core.Open(2, "127.0.0.1:4001", job.now);
  ReportVerdictsRequest report;
  *report.mutable_header() = job.shards[0]->header;
  *report.mutable_progress() = progress;
  Replies replies;
  ASSERT_TRUE(core.ReportVerdicts(report, job.now, replies).ok()) << "without any verdict";
  EXPECT_EQ(core.progress().step(), 4u);
  EXPECT_EQ(core.progress().position().SerializeAsString(),
            job.core.progress().position().SerializeAsString());
}

TEST(CoordinatorRestart, AnotherJobFileIsRefused) {
  CoordinatorFixture job(1, 1);
  CoordinatorState state = Recorded(job);
  state.set_job_fingerprint("another");
  EXPECT_EQ(CoordinatorCore(job.options_).Restore(state).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CoordinatorRestart, NoStateThatIsNoneEndsTheProcess) {
  CoordinatorFixture job(2, 2);
  const std::string good = Recorded(job).SerializeAsString();
  std::mt19937_64 random(1);
  int refused = 0;
  int taken = 0;
  for (int i = 0; i < 5'000; ++i) {
    std::string bytes = good;
    for (uint64_t changes = 1 + random() % 3; changes != 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 128);
    }
    CoordinatorState state;
    if (!state.ParseFromString(bytes)) continue;
    CoordinatorCore core(job.options_);
    if (!core.Restore(state).ok()) {
      ++refused;
      continue;
    }
    ++taken;
    core.Open(2, "127.0.0.1:4001", job.now);
    Replies replies;
    core.Tick(job.now + kLiveness / 4, replies);
    (void)core.GetStatus({}, job.now);
    (void)core.DurableState();
    core.Tick(job.now + absl::Hours(1), replies);
    core.Tick(job.now + absl::Hours(1) + kLiveness, replies);
    core.Tick(job.now + absl::Hours(1) + 2 * kLiveness, replies);
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(taken, 100);
}

// All but one may be dead, but where all are silent it is the coordinator that is cut off.
TEST(CoordinatorAlone, WhoHearsNobodyRemovesNobodyForTheTimeOfAutonomy) {
  auto options = CoordinatorFixture::DefaultOptions(1, 2);
  options.autonomy = 6 * kLiveness;
  CoordinatorFixture job(options);
  job.Train();
  for (auto& process : job.processes) process->alive = false;
  job.Pass(6.5 * kLiveness);
  EXPECT_EQ(job.core.phase(), TRAINING);
  // One is heard of again: the others have a full lease from then on.
  job.shards[0]->alive = true;
  job.Pass(0.9 * kLiveness);
  EXPECT_EQ(job.core.phase(), TRAINING);
  job.Pass(0.5 * kLiveness);
  EXPECT_EQ(job.core.phase(), FAILED);
  EXPECT_NE(job.core.cause()->text().find("worker 0"), std::string::npos);
}

TEST(CoordinatorAlone, ForLongerThanAutonomyTheJobEnds) {
  auto options = CoordinatorFixture::DefaultOptions(1, 1);
  options.autonomy = 2 * kLiveness;
  CoordinatorFixture job(options);
  job.Train();
  for (auto& process : job.processes) process->alive = false;
  job.Pass(2.9 * kLiveness);
  EXPECT_EQ(job.core.phase(), TRAINING);
  job.Pass(0.3 * kLiveness);
  EXPECT_EQ(job.core.phase(), FAILED);
}

}  // namespace
}  // namespace parley
