#include "server/pipeline_stage/weight_stash.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/await.h"

namespace parley {

WeightStash::WeightStash(Options options, Session& session, ModuleBinding& binding)
    : options_(std::move(options)), session_(session), binding_(binding) {}

WeightStash::~WeightStash() {
  if (thread_.joinable()) (void)End(absl::CancelledError("the stage has ended"));
  binding_.GatherApart(false);
  binding_.UseValues({}).IgnoreError();
}

uint64_t WeightStash::VersionOf(size_t step) const {
  const uint64_t first = options_.plans[0].step - 1;
  return first + (step > options_.delay ? step - options_.delay : 0);
}

absl::Status WeightStash::Begin() {
  ModuleBinding::StepTensors weights;
  if (absl::Status copied = binding_.CopyParameters(weights); !copied.ok()) return copied;
  {
    absl::MutexLock lock(&mu_);
    versions_[VersionOf(0)] = std::move(weights);
  }
  binding_.GatherApart(true);
  thread_ = std::thread([this] { Exchange(); });
  return absl::OkStatus();
}

absl::Status WeightStash::Use(size_t step) {
  const uint64_t version = VersionOf(step);
  if (used_ == version) return absl::OkStatus();
  const auto has = [&] {
    mu_.AssertHeld();
    return versions_.count(version) > 0;
  };
  absl::Status waited = AwaitPeers(absl::StrCat("waiting for the weights of step ", version),
                                   [&] { return has() || !options_.lost().ok(); });
  if (!waited.ok()) return waited;
  ModuleBinding::StepTensors weights;
  {
    absl::MutexLock lock(&mu_);
    if (!has()) return options_.lost();
    weights = versions_.at(version);
  }
  used_ = version;
  return binding_.UseValues(weights);
}

absl::Status WeightStash::Submit(size_t step) {
  absl::StatusOr<ModuleBinding::StepTensors> gathered = binding_.TakeGathered();
  if (!gathered.ok()) return gathered.status();
  {
    absl::MutexLock lock(&mu_);
    submitted_[step] = *std::move(gathered);
    // Nothing that is computed from here on is older than the next step.
    while (!versions_.empty() && versions_.begin()->first < VersionOf(step + 1)) {
      free_ = std::move(versions_.begin()->second);
      versions_.erase(versions_.begin());
    }
  }
  session_.Wake();
  return absl::OkStatus();
}

absl::Status WeightStash::AwaitPeers(const std::string& what, const std::function<bool()>& done) {
  bool told = false;
  bool over = false;
  while (!over) {
    bool quiet = false;
    {
      absl::MutexLock lock(&mu_);
      // `done` is called here only: it may lock, as what is waited for with a mutex must not.
      while (!(over = ended_ || done()) && !quiet) {
        changed_ = false;
        quiet = !AwaitFor(mu_, absl::Condition(&changed_), options_.quiet);
      }
    }
    if (!over && !std::exchange(told, true)) WaitsFor(what);
  }
  if (told) WaitsFor("");
  absl::MutexLock lock(&mu_);
  if (!error_.ok()) return error_;
  // Its last step was decided, which needs nothing more; or one of them has gone on without it.
  return done() ? absl::OkStatus() : absl::AbortedError("the job has gone on without this step");
}

void WeightStash::WaitsFor(const std::string& what) {
  {
    absl::MutexLock lock(&mu_);
    waits_for_ = what;
  }
  session_.Wake();
}

void WeightStash::Wake() {
  absl::MutexLock lock(&mu_);
  changed_ = true;
}

absl::Status WeightStash::AwaitLast() {
  // What this gives is said by the thread, too.
  AwaitPeers("waiting for the verdict of the last step", [&] {
    return !options_.lost().ok();
  }).IgnoreError();
  absl::MutexLock lock(&mu_);
  return ended_ ? absl::OkStatus() : options_.lost();
}

bool WeightStash::Stop(const absl::Status& why) {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    if (ended_ || absl::IsCancelled(why)) return true;
    if (!absl::IsUnavailable(why)) return false;
  }
  session_.Wake();
  // A process that is gone the session will hear of, but not of one that is there and was not
  // reached.
  absl::MutexLock lock(&mu_);
  return AwaitFor(mu_, absl::Condition(&ended_), options_.patience);
}

size_t WeightStash::copies() {
  absl::MutexLock lock(&mu_);
  return versions_.size() + submitted_.size() + (free_.empty() ? 0 : 1);
}

absl::StatusOr<bool> WeightStash::End(absl::Status computed) {
  if (computed.ok()) computed = AwaitLast();
  if (!computed.ok() && !Stop(computed)) {
    // Nobody will hear of this stage in a step that it has not computed.
    (void)session_.Fail(std::string(computed.message()), /*preempted=*/false);
  }
  session_.Wake();
  if (thread_.joinable()) thread_.join();
  absl::MutexLock lock(&mu_);
  if (stale_) return false;
  if (!error_.ok()) return error_;
  if (!computed.ok()) return computed;
  return true;
}

void WeightStash::Exchange() {
  absl::Status status;
  for (size_t step = 0; step < options_.plans.size() && status.ok(); ++step) {
    status = ExchangeStep(step);
  }
  absl::MutexLock lock(&mu_);
  if (!stopped_ || !absl::IsCancelled(status)) error_ = status;  // else End has the reason
  ended_ = true;
  changed_ = true;
}

absl::Status WeightStash::AwaitSubmitted(size_t step) {
  while (true) {
    std::string waits_for;
    {
      absl::MutexLock lock(&mu_);
      waits_for = waits_for_;
    }
    const std::string what =
        absl::StrCat("computing step ", options_.plans[step].step, " of a stretch of ",
                     options_.plans.size(), waits_for.empty() ? "" : ": ", waits_for);
    bool stopped = false, submitted = false, waits_on = true;
    const absl::Status waited = session_.AwaitPeers(what, [&] {
      absl::MutexLock lock(&mu_);
      stopped = stopped_;
      submitted = submitted_.count(step) > 0;
      waits_on = waits_for_ == waits_for;
      return stopped || submitted || !waits_on;
    });
    if (stopped) return absl::CancelledError("the stage has given the stretch up");
    if (submitted) return absl::OkStatus();
    // Nothing has come for it in all that time. Or it computes: whether that takes too long the
    // coordinator sees, which ends a job in which nobody gets on.
    const bool too_long = absl::IsDeadlineExceeded(waited) && waits_on && !waits_for.empty();
    if (too_long || (!waited.ok() && !absl::IsDeadlineExceeded(waited))) return waited;
  }
}

absl::Status WeightStash::ExchangeStep(size_t step) {
  const std::optional<StepPlan> plan = session_.NextStep();
  const StepPlan& expected = options_.plans[step];
  if (!plan.has_value() || plan->step != expected.step || plan->samples != expected.samples) {
    return absl::InternalError(
        absl::StrCat("step ", expected.step, " has other samples than when its stretch began"));
  }
  if (absl::Status submitted = AwaitSubmitted(step); !submitted.ok()) return submitted;
  ModuleBinding::StepTensors tensors;
  {
    absl::MutexLock lock(&mu_);
    tensors = std::move(submitted_.at(step));
    submitted_.erase(step);
  }
  const absl::StatusOr<Verdict> verdict = binding_.CompleteWith(std::move(tensors), 0);
  if (!verdict.ok()) return verdict.status();
  if (verdict->outcome() == Verdict::STALE) {
    absl::MutexLock lock(&mu_);
    stale_ = true;
    return absl::AbortedError("the job has gone on without this step");
  }
  options_.on_decided(*verdict, *plan);
  // Those of the last steps nobody of this stretch computes with.
  if (step + 1 + options_.delay >= options_.plans.size()) {
    return step + 1 < options_.plans.size() ? binding_.PullParameters() : absl::OkStatus();
  }
  if (absl::Status pulled = binding_.PullParameters(); !pulled.ok()) return pulled;
  return KeepVersion(plan->step);
}

absl::Status WeightStash::KeepVersion(uint64_t version) {
  ModuleBinding::StepTensors weights;
  {
    absl::MutexLock lock(&mu_);
    weights = std::exchange(free_, {});
  }
  if (absl::Status copied = binding_.CopyParameters(weights); !copied.ok()) return copied;
  absl::MutexLock lock(&mu_);
  versions_[version] = std::move(weights);
  changed_ = true;
  return absl::OkStatus();
}

}  // namespace parley
