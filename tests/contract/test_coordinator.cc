#include "tests/contract/test_coordinator.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/job/data_division.h"
#include "server/coordinator/core_options.h"

namespace parley {
namespace {

std::shared_ptr<LockedCoordinator> MakeCore(const JobConfig& job) {
  CoordinatorCore::Options options = CoreOptions(job);
  options.autonomy = absl::ZeroDuration();  // these jobs end with their coordinator
  options.checkpoint_directory = "/nowhere/checkpoints";
  return std::make_shared<LockedCoordinator>(std::move(options), [] { return SteadyNow(); });
}

void Replace(const TestCoordinator::NewShard& shard, CoordinatorState& state) {
  Member* in_view = nullptr;
  for (Member& member : *state.mutable_view()->mutable_members()) {
    if (member.role() == SHARD && member.ordinal() == shard.ordinal) in_view = &member;
  }
  ASSERT_NE(in_view, nullptr);
  for (LoggedMember& logged : *state.mutable_members()) {
    if (logged.member().id() != in_view->id()) continue;
    logged.set_fenced(true);
    logged.set_holds_place(false);
  }
  state.set_last_member(state.last_member() + 1);
  in_view->set_id(state.last_member());
  in_view->set_incarnation(shard.incarnation);
  in_view->set_address(shard.address);
  LoggedMember& logged = *state.add_members();
  *logged.mutable_member() = *in_view;
  logged.set_holds_place(true);
}

}  // namespace

TestCoordinator::TestCoordinator(const JobConfig& job)
    : job_(job), served_(nullptr), cores_({MakeCore(job)}) {
  served_.SwitchTo(core());
  ticker_ = std::make_unique<Ticker>(absl::Milliseconds(10), [this] { Tick(); });
}

TestCoordinator::~TestCoordinator() { ticker_.reset(); }

void TestCoordinator::Open(const std::string& address) {
  address_ = address;
  core()->Open(/*generation=*/1, address);
}

std::shared_ptr<LockedCoordinator> TestCoordinator::core() const {
  absl::MutexLock lock(&mu_);
  return cores_.back();
}

void TestCoordinator::Tick() {
  const auto now = core();
  now->Tick();
  now->DoFileWork([](const FileWork&) { return absl::OkStatus(); });
}

bool TestCoordinator::Await(const std::function<bool(const CoordinatorCore&)>& holds) const {
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  while (!core()->Read(holds)) {
    if (SteadyNow() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

bool TestCoordinator::AwaitStep(uint64_t step) {
  return Await([step](const CoordinatorCore& core) { return core.progress().step() >= step; });
}

uint64_t TestCoordinator::job_epoch() const {
  return core()->Read([](const CoordinatorCore& core) { return core.job_epoch(); });
}

bool TestCoordinator::AwaitFinished(int workers) {
  return Await([workers](const CoordinatorCore& core) {
    return core.DurableState().finished_size() >= workers;
  });
}

void TestCoordinator::GoBack(const std::string& folder, uint64_t version,
                             const DataPosition& position,
                             const std::optional<NewShard>& new_shard) {
  const auto former = core();
  const auto next = MakeCore(job_);
  served_.SwitchTo(next);  // until it is open it answers nothing
  CoordinatorState state =
      former->Read([](const CoordinatorCore& core) { return core.DurableState(); });
  if (new_shard.has_value()) Replace(*new_shard, state);
  state.set_phase(PREPARING);
  state.set_job_epoch(state.job_epoch() + 1);
  ClusterView& view = *state.mutable_view();
  view.set_job_epoch(state.job_epoch());
  view.set_view_epoch(view.view_epoch() + 1);
  view.set_first_step(version + 1);
  view.set_start_from(folder);
  view.set_start_version(version);
  *view.mutable_data_position() = position;
  state.clear_ready_shards();
  state.clear_progress();
  JobProgress& progress = *state.mutable_progress()->mutable_at();
  progress.set_step(version);
  *progress.mutable_position() = position;
  progress.set_samples(position.epoch() * view.training_samples() +
                       Count({position.used().begin(), position.used().end()}));
  std::vector<EvaluationPart> kept;
  for (const EvaluationPart& part : state.evaluation_parts()) {
    if (part.part().version() <= version) kept.push_back(part);
  }
  state.mutable_evaluation_parts()->Assign(kept.begin(), kept.end());
  std::vector<Evaluation> whole;
  for (const Evaluation& evaluation : state.evaluations()) {
    if (evaluation.version() <= version) whole.push_back(evaluation);
  }
  state.mutable_evaluations()->Assign(whole.begin(), whole.end());
  state.clear_finished();
  state.clear_finish_begun();
  state.clear_phase_seconds();
  state.clear_checkpoint();
  const absl::Status restored = next->Restore(state);
  ASSERT_TRUE(restored.ok()) << restored;
  {
    absl::MutexLock lock(&mu_);
    cores_.push_back(next);
  }
  next->Open(/*generation=*/state.job_epoch(), address_);
  former->Close();
}

}  // namespace parley
