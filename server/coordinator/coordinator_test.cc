#include "server/coordinator/coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using absl::StatusCode;

TEST(CoordinatorTest, MembersMayJoinInAnyOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CoordinatorFixture job(3, 4);
    std::vector<Role> roles = {SHARD, SHARD, SHARD, WORKER, WORKER, WORKER, WORKER};
    std::mt19937_64 random(seed);
    std::shuffle(roles.begin(), roles.end(), random);
    std::set<std::pair<Role, uint32_t>> places;
    std::set<uint64_t> ids;
    for (Role role : roles) {
      ASSERT_EQ(job.core.phase(), GATHERING);
      auto& process = job.StartAndJoin(role);
      EXPECT_TRUE(places.insert({role, process.ordinal}).second);
      EXPECT_TRUE(ids.insert(process.header.member()).second);
      // Some register as soon as they can, others when all are there.
      if (role == WORKER && random() % 2 == 0) {
        ASSERT_TRUE(job.Register(process).ok());
      }
    }
    for (auto& process : job.processes) {
      if (process->role == WORKER) {
        ASSERT_TRUE(job.Register(*process).ok());
      }
    }
    EXPECT_EQ(job.core.phase(), PREPARING) << "seed " << seed;
    EXPECT_EQ(places.rbegin()->second, 3u);
  }
}

TEST(CoordinatorTest, TheViewNamesContributorsSlicesAndStepLeader) {
  CoordinatorFixture job(2, 3);
  job.Gather();
  const ClusterView view = (*job.workers[0]->watched)->view();
  EXPECT_EQ(view.view_epoch(), 1u);
  EXPECT_EQ(view.job_epoch(), 1u);
  EXPECT_EQ(view.first_step(), 1u);
  EXPECT_EQ(view.members_size(), 5);
  ASSERT_EQ(view.contributors_size(), 3);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(view.contributors(i).ordinal(), i);
    ASSERT_EQ(view.contributors(i).part_members_size(), 1);
    EXPECT_EQ(view.contributors(i).part_members(0), job.workers[i]->header.member());
  }
  EXPECT_EQ(view.tensors_size(), 2);
  EXPECT_EQ(view.slices_size(), 3);  // fc1.weight has 524,288 elements
  EXPECT_EQ(view.step_leader(), 0u);
  EXPECT_EQ(view.start_from(), "");
  EXPECT_EQ(view.training_samples(), 100u);
  EXPECT_EQ(view.test_samples(), 20u);
  EXPECT_EQ(view.total_steps(), 8u);  // 30 samples a step: 4 steps an epoch
}

TEST(CoordinatorTest, JoinRepeatedByTheSameIncarnationGivesTheSameAnswer) {
  CoordinatorFixture job(1, 2);
  auto& worker = job.StartAndJoin(WORKER);
  const auto before = worker.header;
  ASSERT_TRUE(job.Join(worker).ok());
  EXPECT_EQ(worker.header.member(), before.member());
  EXPECT_EQ(worker.ordinal, 0u);
  EXPECT_EQ(job.StartAndJoin(WORKER).ordinal, 1u);
  ASSERT_TRUE(job.Join(worker).ok());
  EXPECT_EQ(worker.header.member(), before.member());
}

TEST(CoordinatorTest, TheLastShardMayJoinAfterAllWorkersHaveRegistered) {
  CoordinatorFixture job(2, 2);
  job.StartAndJoin(SHARD);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(job.Register(job.StartAndJoin(WORKER)).ok());
  auto& watcher = job.StartAndJoin(SHARD);
  EXPECT_EQ(job.core.phase(), PREPARING);
  job.Watch(watcher);
  ASSERT_TRUE(watcher.watched.has_value() && watcher.watched->ok());
  EXPECT_GT((*watcher.watched)->view().slices_size(), 0);
}

TEST(CoordinatorTest, AFullRoleTakesNobodyElse) {
  CoordinatorFixture job(1, 1);
  job.StartAndJoin(WORKER);
  EXPECT_EQ(job.Join(job.Start(WORKER)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(job.Join(job.Start(STAGE)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Join(job.Start(COORDINATOR)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(job.Join(job.Start(SHARD)).ok());
}

TEST(CoordinatorTest, AnotherJobIsRefusedWithBothFingerprints) {
  CoordinatorFixture job(1, 1);
  auto& worker = job.Start(WORKER);
  JoinRequest request = job.JoinOf(worker);
  request.set_job_fingerprint("00000000000000bb");
  Replies replies;
  const absl::Status status = job.core.Join(request, job.now, replies).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("00000000000000aa"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("00000000000000bb"), absl::string_view::npos) << status;
  worker.header.set_job("letters");
  EXPECT_EQ(job.Join(worker).code(), StatusCode::kNotFound);
}

TEST(CoordinatorTest, NewIncarnationFencesTheOldOne) {
  CoordinatorFixture job(1, 2);
  auto& old = job.StartAndJoin(WORKER);
  auto& other = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(old).ok());
  job.Watch(old);  // tells the state at once
  job.Watch(old);  // parks
  ASSERT_FALSE(old.watched.has_value());

  auto& replacement = job.Start(WORKER);
  replacement.address = old.address;
  ASSERT_TRUE(job.Join(replacement).ok());
  EXPECT_EQ(replacement.ordinal, old.ordinal);
  EXPECT_NE(replacement.header.member(), old.header.member());
  ASSERT_TRUE(old.watched.has_value());
  EXPECT_EQ(old.watched->status().code(), StatusCode::kAborted);

  EXPECT_EQ(job.Heartbeat(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.Register(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.Fail(old, "too late").code(), StatusCode::kAborted);
  EXPECT_EQ(job.Leave(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.Join(old).code(), StatusCode::kAborted);
  EXPECT_EQ(job.core.phase(), GATHERING);

  // What the fenced one registered counts no more.
  job.StartAndJoin(SHARD);
  ASSERT_TRUE(job.Register(other).ok());
  EXPECT_EQ(job.core.phase(), GATHERING);
  ASSERT_TRUE(job.Register(replacement).ok());
  EXPECT_EQ(job.core.phase(), PREPARING);
}

TEST(CoordinatorTest, EveryCallOfAStrangerIsRefusedWithoutEffect) {
  CoordinatorFixture job(1, 1);
  job.Train();
  const CallHeader right = job.workers[0]->header;
  struct Case {
    const char* what;
    CallHeader header;
    StatusCode code;
  };
  std::vector<Case> cases;
  CallHeader header = right;
  header.set_job("letters");
  cases.push_back({"another job", header, StatusCode::kNotFound});
  header = right;
  header.set_incarnation(right.incarnation() + 1);
  cases.push_back({"another incarnation", header, StatusCode::kAborted});
  header = right;
  header.set_member(99);
  cases.push_back({"no member", header, StatusCode::kAborted});
  for (const Case& one : cases) {
    CoordinatorFixture::Process stranger;
    stranger.role = WORKER;
    stranger.header = one.header;
    EXPECT_EQ(job.Heartbeat(stranger).code(), one.code) << one.what;
    EXPECT_EQ(job.Register(stranger).code(), one.code) << one.what;
    EXPECT_EQ(job.Ready(stranger).code(), one.code) << one.what;
    EXPECT_EQ(job.Report(stranger, {job.NextVerdict()}).code(), one.code) << one.what;
    EXPECT_EQ(job.Finish(stranger, 1).code(), one.code) << one.what;
    EXPECT_EQ(job.ReportFile(job.FileOf(stranger, 1)).code(), one.code) << one.what;
    EXPECT_EQ(job.Fail(stranger, "x").code(), one.code) << one.what;
    EXPECT_EQ(job.Leave(stranger).code(), one.code) << one.what;
    job.Watch(stranger);
    ASSERT_TRUE(stranger.watched.has_value());
    EXPECT_EQ(stranger.watched->status().code(), one.code) << one.what;
    ReportEvaluationRequest evaluation;
    *evaluation.mutable_header() = one.header;
    Replies replies;
    EXPECT_EQ(job.core.ReportEvaluation(evaluation, job.now, replies).status().code(), one.code);
  }
  EXPECT_EQ(job.core.phase(), TRAINING);
  EXPECT_EQ(job.core.progress().step(), 0u);
}

TEST(CoordinatorTest, CallsOnTheJobsStateAreFencedByEpochs) {
  CoordinatorFixture job(1, 1);
  job.Train();
  auto shard = *job.shards[0];
  shard.header.set_view_epoch(2);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kFailedPrecondition);
  shard = *job.shards[0];
  shard.header.set_job_epoch(2);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kFailedPrecondition);
  shard = *job.shards[0];
  shard.header.set_job_epoch(0);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kAborted);
  shard = *job.shards[0];
  shard.header.set_view_epoch(0);
  EXPECT_EQ(job.Report(shard, {job.NextVerdict()}).code(), StatusCode::kFailedPrecondition);
  // A lease is renewed whatever the caller knows of the job's state.
  EXPECT_TRUE(job.Heartbeat(shard).ok());
  EXPECT_EQ(job.core.progress().step(), 0u);
}

TEST(CoordinatorTest, NothingButStatusIsAnsweredBeforeTheCoordinatorOwnsTheJob) {
  CoordinatorCore core(CoordinatorFixture::DefaultOptions(1, 1));
  const absl::Time now = absl::UnixEpoch();
  Replies replies;
  EXPECT_EQ(core.Join({}, now, replies).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(core.Heartbeat({}, now, replies).status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE(core.GetStatus({}, now).ok());
  EXPECT_EQ(core.GetStatus({}, now)->generation(), 0u);
}

TEST(CoordinatorTest, WorkersThatTrainDifferentModelsAreTold) {
  CoordinatorFixture job(1, 2);
  auto& first = job.StartAndJoin(WORKER);
  auto& second = job.StartAndJoin(WORKER);
  ASSERT_TRUE(job.Register(first).ok());
  RegisterModelRequest other = CoordinatorFixture::Model();
  other.mutable_tensors(1)->set_shape(0, 2);
  const absl::Status status = job.Register(second, other);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'fc1.bias' F32 [2, 1024] here"), absl::string_view::npos)
      << status;
  EXPECT_NE(status.message().find("worker 0 at 127.0.0.1:4100"), absl::string_view::npos) << status;
  other = CoordinatorFixture::Model();
  other.set_training_samples(99);
  EXPECT_EQ(job.Register(second, other).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(job.Register(second).ok());
}

TEST(CoordinatorTest, ATrainedTensorOfATypeThatNoOptimizerKnowsIsRefusedWhenItIsRegistered) {
  CoordinatorFixture job(1, 1);
  auto& worker = job.StartAndJoin(WORKER);
  for (const DataType dtype : {F16, BF16, I64, BOOL}) {
    RegisterModelRequest model = CoordinatorFixture::Model();
    model.mutable_tensors(1)->set_dtype(dtype);
    const absl::Status status = job.Register(worker, model);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << DataType_Name(dtype);
    EXPECT_NE(status.message().find(DataType_Name(dtype)), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("'fc1.bias'"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("F32 or F64"), absl::string_view::npos) << status;
  }
  RegisterModelRequest model = CoordinatorFixture::Model();
  model.mutable_tensors(0)->set_dtype(F64);
  model.mutable_tensors(1)->set_dtype(I64);
  model.mutable_tensors(1)->set_buffer(true);
  EXPECT_TRUE(job.Register(worker, model).ok()) << "a buffer may be of any type";
}

TEST(CoordinatorTest, StatusSaysWhoIsMissing) {
  CoordinatorFixture job(2, 1);
  EXPECT_EQ(job.Status().what_is_missing(),
            "shard 0 has not joined; shard 1 has not joined; worker 0 has not joined");
  EXPECT_EQ(job.Status().expected_members(), 3u);
  auto& shard = job.StartAndJoin(SHARD);
  auto& worker = job.StartAndJoin(WORKER);
  EXPECT_EQ(job.Status().what_is_missing(),
            "shard 1 has not joined; worker 0 at 127.0.0.1:4101 (pid 101) has not registered its "
            "model");
  job.StartAndJoin(SHARD);
  ASSERT_TRUE(job.Register(worker).ok());
  job.LearnView();
  ASSERT_TRUE(job.Ready(shard).ok());
  EXPECT_EQ(job.Status().what_is_missing(), "shard 1 at 127.0.0.1:4102 (pid 102) is not ready");
  EXPECT_EQ(job.Status().phase(), PREPARING);
  GetStatusRequest other;
  other.set_job("letters");
  EXPECT_EQ(job.core.GetStatus(other, job.now).status().code(), StatusCode::kNotFound);
}

TEST(CoordinatorTest, WatchParksUntilThereIsSomethingNew) {
  CoordinatorFixture job(1, 1);
  auto& shard = job.StartAndJoin(SHARD);
  auto& worker = job.StartAndJoin(WORKER);
  job.Watch(shard);
  ASSERT_TRUE(shard.watched.has_value());
  EXPECT_EQ((*shard.watched)->phase(), GATHERING);
  job.Watch(shard);
  job.Pass(absl::Seconds(5));
  EXPECT_FALSE(shard.watched.has_value());
  ASSERT_TRUE(job.Register(worker).ok());
  ASSERT_TRUE(shard.watched.has_value());
  EXPECT_EQ((*shard.watched)->phase(), PREPARING);
}

TEST(CoordinatorTest, WatchAnswersWithTheUnchangedStateAtItsDeadline) {
  CoordinatorFixture job(1, 1);
  auto& shard = job.StartAndJoin(SHARD);
  job.Watch(shard);
  const uint64_t revision = shard.seen_revision;
  const absl::Time parked = job.now;
  job.Watch(shard, absl::Seconds(7));
  job.Pass(absl::Seconds(8));
  ASSERT_TRUE(shard.watched.has_value());
  EXPECT_EQ((*shard.watched)->revision(), revision);
  EXPECT_GE(shard.watched_at, parked + absl::Seconds(7));
  EXPECT_LE(shard.watched_at, parked + absl::Milliseconds(7500));
}

TEST(CoordinatorTest, ASecondWatchOfAMemberAnswersTheFirst) {
  CoordinatorFixture job(1, 1);
  auto& shard = job.StartAndJoin(SHARD);
  job.Watch(shard);
  int answers = 0;
  WatchRequest request;
  *request.mutable_header() = shard.header;
  request.set_seen_revision(shard.seen_revision);
  const auto count = [&](absl::StatusOr<WatchReply> reply) { answers += reply.ok() ? 1 : 100; };
  for (int i = 0; i < 3; ++i) {
    Replies replies;
    job.core.Watch(request, {job.now, job.now + absl::Minutes(1)}, replies, count);
  }
  EXPECT_EQ(answers, 2);
  {
    Replies replies;
    job.core.Close(replies);
  }
  EXPECT_EQ(answers, 3);
  {
    Replies replies;
    job.core.Watch(request, {job.now, job.now + absl::Minutes(1)}, replies, count);
  }
  EXPECT_EQ(answers, 4) << "nothing parks any more when the process goes";
}

TEST(CoordinatorTest, AJobGoesFromGatheringToFinished) {
  CoordinatorFixture job(2, 2);
  job.Train();
  job.now += absl::Seconds(2);
  while (job.core.progress().step() < 10) {
    job.now += absl::Milliseconds(100);
    ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  }
  GetStatusReply status = job.Status();
  EXPECT_EQ(status.step(), 10u);
  EXPECT_EQ(status.total_steps(), 10u);
  EXPECT_EQ(status.samples(), 200u);
  EXPECT_EQ(status.data_epoch(), 1u);
  EXPECT_EQ(status.epochs(), 2u);
  EXPECT_DOUBLE_EQ(status.loss(), 0.5);
  EXPECT_DOUBLE_EQ(status.seconds_training(), 3);
  EXPECT_EQ(job.core.progress().position().epoch(), 2u);

  for (auto* process : {job.shards[1], job.workers[0]}) {
    job.Watch(*process);
    job.Watch(*process);
    ASSERT_FALSE(process->watched.has_value());
  }
  ASSERT_TRUE(job.Finish(*job.workers[0], 10).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 10).ok()) << "may be repeated";
  EXPECT_EQ(job.core.phase(), TRAINING);
  ASSERT_TRUE(job.Finish(*job.workers[1], 10).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
  EXPECT_EQ(job.Status().phase_seconds(0).seconds(), 3.0);

  // No shard writes before its folder is there.
  EXPECT_FALSE((*job.shards[1]->watched)->has_checkpoint());
  auto work = job.core.TakeFileWork();
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].kind, FileWork::Kind::kCreateFolder);
  EXPECT_EQ(work[0].folder, "/job/checkpoints/step-00000010");
  EXPECT_EQ(job.ReportFile(job.FileOf(*job.shards[0], 10)).code(), StatusCode::kFailedPrecondition);
  job.Watch(*job.shards[1]);
  job.Done(work[0]);
  ASSERT_TRUE(job.shards[1]->watched.has_value());
  EXPECT_EQ((*job.shards[1]->watched)->checkpoint().step(), 10u);
  EXPECT_EQ((*job.shards[1]->watched)->checkpoint().directory(), work[0].folder);

  auto file = job.FileOf(*job.shards[0], 10);
  (*file.mutable_optimizer_steps())["fc1.weight"] = 9;
  ASSERT_TRUE(job.ReportFile(file).ok());
  ASSERT_TRUE(job.ReportFile(file).ok()) << "may be repeated";
  EXPECT_TRUE(job.core.TakeFileWork().empty());
  file = job.FileOf(*job.shards[1], 10);
  (*file.mutable_optimizer_steps())["fc1.bias"] = 10;
  ASSERT_TRUE(job.ReportFile(file).ok());
  work = job.core.TakeFileWork();
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].kind, FileWork::Kind::kCommit);
  const Manifest& manifest = work[0].manifest;
  EXPECT_EQ(manifest.format(), 1u);
  EXPECT_EQ(manifest.job_name(), "digits");
  EXPECT_EQ(manifest.step(), 10u);
  EXPECT_EQ(manifest.seed(), 7u);
  EXPECT_EQ(manifest.tensors_size(), 2);
  EXPECT_EQ(manifest.data_position().epoch(), 2u);
  ASSERT_EQ(manifest.files_size(), 2);
  EXPECT_EQ(manifest.files(1).name(), "shard-1.safetensors");
  EXPECT_EQ(manifest.optimizer_steps().at("fc1.weight"), 9u);
  EXPECT_EQ(manifest.optimizer_steps().at("fc1.bias"), 10u);
  EXPECT_EQ(manifest.job().epochs(), 2u);
  EXPECT_EQ(job.core.phase(), SAVING) << "the commit is the end";

  job.Watch(*job.workers[0]);
  job.Watch(*job.workers[0]);
  job.Done(work[0]);
  EXPECT_EQ(job.core.phase(), FINISHED);
  ASSERT_TRUE(job.workers[0]->watched.has_value());
  EXPECT_EQ((*job.workers[0]->watched)->checkpoint_directory(), "/job/checkpoints/step-00000010");
  EXPECT_EQ(job.Status().checkpoint_step(), 10u);
  EXPECT_EQ(job.ReportFile(job.FileOf(*job.shards[0], 10)).code(), StatusCode::kOk) << "repeated";

  // The process stays until all have gone.
  EXPECT_FALSE(job.core.MayExit(job.now));
  for (auto& process : job.processes) {
    EXPECT_FALSE(job.core.MayExit(job.now));
    ASSERT_TRUE(job.Leave(*process).ok());
    ASSERT_TRUE(job.Leave(*process).ok()) << "may be repeated";
  }
  EXPECT_TRUE(job.core.MayExit(job.now));
  EXPECT_TRUE(job.core.Members().empty());
  EXPECT_EQ(job.core.phase(), FINISHED);
  EXPECT_FALSE(job.core.cause().has_value());
}

TEST(CoordinatorTest, VerdictsAndFinishMayComeInAnyOrder) {
  // The step leader may report before the last shard's ReportReady, and after the workers' Finish.
  CoordinatorFixture job(2, 1);
  job.Gather();
  ASSERT_TRUE(job.Ready(*job.shards[0]).ok());
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 2).ok());
  ASSERT_TRUE(job.Ready(*job.shards[1]).ok());
  EXPECT_EQ(job.core.phase(), TRAINING);
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  EXPECT_EQ(job.core.phase(), SAVING);
}

TEST(CoordinatorTest, OnlyTheStepLeaderReportsVerdicts) {
  CoordinatorFixture job(2, 1);
  job.Train();
  EXPECT_EQ(job.Report(*job.shards[1], {job.NextVerdict()}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Report(*job.workers[0], {job.NextVerdict()}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Ready(*job.workers[0]).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.Finish(*job.shards[0], 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(job.core.progress().step(), 0u);
}

TEST(CoordinatorTest, WithoutACheckpointAtTheEndTheJobFinishesAtOnce) {
  auto options = CoordinatorFixture::DefaultOptions(1, 1);
  options.job.mutable_checkpoint()->set_at_end(false);
  CoordinatorFixture job(options);
  job.Train();
  ASSERT_TRUE(job.Report(*job.shards[0], {job.NextVerdict()}).ok());
  ASSERT_TRUE(job.Finish(*job.workers[0], 1).ok());
  EXPECT_EQ(job.core.phase(), FINISHED);
  EXPECT_TRUE(job.core.TakeFileWork().empty());
}

CoordinatorCore::Options StartingFromStep5() {
  auto options = CoordinatorFixture::DefaultOptions(1, 1);
  StartPoint start;
  start.folder = "/old/step-00000005";
  *start.manifest.mutable_tensors() = CoordinatorFixture::Model().tensors();
  start.manifest.set_step(5);
  SampleRange* used = start.manifest.mutable_data_position()->add_used();
  used->set_begin(0);
  used->set_end(50);
  options.start = start;
  return options;
}

TEST(CoordinatorTest, AJobStartsFromACheckpointWithItsDataPosition) {
  CoordinatorFixture job(StartingFromStep5());
  job.Gather();
  const ClusterView& view = (*job.workers[0]->watched)->view();
  EXPECT_EQ(view.start_from(), "/old/step-00000005");
  EXPECT_EQ(view.start_version(), 5u);
  EXPECT_EQ(view.first_step(), 6u);
  EXPECT_EQ(view.total_steps(), 20u);
  EXPECT_EQ(view.data_position().used(0).end(), 50u);
  EXPECT_EQ(job.Ready(*job.shards[0], 0).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(job.Ready(*job.shards[0], 5).ok());
  const Verdict verdict = job.NextVerdict();
  EXPECT_EQ(verdict.step(), 6u);
  EXPECT_EQ(verdict.shares(0).ranges(0).begin(), 50u);
  ASSERT_TRUE(job.Report(*job.shards[0], {verdict}).ok());
  EXPECT_EQ(job.Status().step(), 6u);
}

TEST(CoordinatorTest, ACheckpointOfAnotherModelIsRefused) {
  auto options = StartingFromStep5();
  options.start->manifest.mutable_tensors(0)->set_name("fc2.weight");
  CoordinatorFixture job(options);
  auto& worker = job.StartAndJoin(WORKER);
  const absl::Status status = job.Register(worker);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("/old/step-00000005"), absl::string_view::npos);
  EXPECT_NE(status.message().find("fc2.weight"), absl::string_view::npos);
}

TEST(CoordinatorTest, EvaluationsAreToldWhenTheyAreWhole) {
  CoordinatorFixture job(1, 2);
  job.Train();
  const auto report = [&](CoordinatorFixture::Process* worker, uint64_t version, uint64_t samples) {
    ReportEvaluationRequest request;
    *request.mutable_header() = worker->header;
    request.mutable_part()->set_version(version);
    request.mutable_part()->set_epoch(1);
    request.mutable_part()->set_samples(samples);
    request.mutable_part()->set_correct(samples / 2);
    Replies replies;
    return job.core.ReportEvaluation(request, job.now, replies).status().code();
  };
  EXPECT_EQ(report(job.workers[0], 5, 12), StatusCode::kOk);
  EXPECT_EQ(job.Status().evaluations_size(), 0);
  EXPECT_EQ(report(job.workers[1], 5, 7), StatusCode::kInvalidArgument);
  EXPECT_EQ(report(job.workers[1], 5, 8), StatusCode::kOk);
  EXPECT_EQ(report(job.workers[0], 99, 12), StatusCode::kInvalidArgument);
  ASSERT_EQ(job.Status().evaluations_size(), 1);
  EXPECT_EQ(job.Status().evaluations(0).samples(), 20u);
  EXPECT_EQ(job.Status().evaluations(0).correct(), 10u);
}

TEST(CoordinatorTest, TheListOfEndpointsFollowsTheMembers) {
  CoordinatorFixture job(1, 1);
  const uint64_t before = job.core.membership_revision();
  auto& shard = job.StartAndJoin(SHARD);
  EXPECT_GT(job.core.membership_revision(), before);
  ASSERT_EQ(job.core.Members().size(), 1u);
  EXPECT_EQ(job.core.Members()[0].metrics_address(), "127.0.0.1:9100");
  const uint64_t joined = job.core.membership_revision();
  ASSERT_TRUE(job.Heartbeat(shard).ok());
  ASSERT_TRUE(job.Join(shard).ok());
  EXPECT_EQ(job.core.membership_revision(), joined);
}

}  // namespace
}  // namespace parley
