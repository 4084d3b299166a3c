#include "tests/contract/test_coordinator.h"

#include "absl/time/clock.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

CoordinatorCore::Options CoreOptions(const JobConfig& job) {
  CoordinatorCore::Options options;
  options.job = job;
  options.fingerprint = JobFingerprint(job);
  options.liveness = Liveness(job);
  options.stall_timeout = StallTimeout(job);
  options.job_directory = "/nowhere";
  options.checkpoint_directory = "/nowhere/checkpoints";
  return options;
}

}  // namespace

TestCoordinator::TestCoordinator(const JobConfig& job)
    : core_(CoreOptions(job), [] { return absl::Now(); }),
      ticker_(std::make_unique<Ticker>(absl::Milliseconds(10), [this] { Tick(); })) {}

TestCoordinator::~TestCoordinator() { ticker_.reset(); }

void TestCoordinator::Tick() {
  core_.Tick();
  core_.DoFileWork([](const FileWork&) { return absl::OkStatus(); });
  const uint64_t step =
      core_.Read([](const CoordinatorCore& core) { return core.progress().step(); });
  absl::MutexLock lock(&mu_);
  step_ = step;
}

bool TestCoordinator::AwaitStep(uint64_t step) {
  absl::MutexLock lock(&mu_);
  const auto here = [&] {
    mu_.AssertHeld();
    return step_ >= step;
  };
  return mu_.AwaitWithTimeout(absl::Condition(&here), absl::Minutes(1));
}

}  // namespace parley
