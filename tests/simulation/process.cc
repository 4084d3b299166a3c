#include "tests/simulation/process.h"

#include <utility>

namespace parley {
namespace {

// By whole nanoseconds: absl's own product with a double takes many times as long, and this is what
// a simulation does most.
absl::Duration Scaled(absl::Duration by, double factor) {
  const auto nanoseconds = static_cast<double>(absl::ToInt64Nanoseconds(by));
  return absl::Nanoseconds(static_cast<int64_t>(nanoseconds * factor));
}

}  // namespace

// The timers of a living process; dead ones run nothing.
class Process::ProcessTimers final : public Timers {
 public:
  explicit ProcessTimers(std::weak_ptr<Process> process) : process_(std::move(process)) {}

  absl::Time Now() const override {
    const auto process = process_.lock();
    return process == nullptr ? absl::InfiniteFuture() : process->LocalNow();
  }
  void RunAt(absl::Time when, std::function<void()> task) override {
    const auto process = process_.lock();
    if (process == nullptr || !process->alive() || *stopped_) return;
    process->world().At(process->ToWorld(when),
                        [process, stopped = stopped_, task = std::move(task)]() mutable {
                          process->Run([stopped, task = std::move(task)] {
                            if (!*stopped) task();
                          });
                        });
  }
  void Stop() override { *stopped_ = true; }

 private:
  const std::weak_ptr<Process> process_;
  const std::shared_ptr<bool> stopped_ = std::make_shared<bool>(false);
};

class Process::ProcessRuntime final : public Runtime {
 public:
  explicit ProcessRuntime(Process* process) : process_(process) {}

  absl::Time Now() const override { return process_->LocalNow(); }
  std::shared_ptr<Timers> MakeTimers() override {
    return std::make_shared<ProcessTimers>(process_->weak_from_this());
  }
  bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) override {
    while (!condition.Eval()) {
      // Of a killed process too: its time is over.
      if (Now() >= deadline) return false;
      process_->mu_ = &mu;
      process_->condition_ = &condition;
      process_->deadline_ = deadline;
      process_->WakeAt(deadline);
      mu.Unlock();
      process_->fiber_->Yield();
      mu.Lock();
      if (!process_->alive_ && deadline == absl::InfiniteFuture()) throw Killed();
    }
    return true;
  }
  uint64_t DrawIncarnation() override {
    ++process_->incarnations_;
    return process_->world_->random()() | 1;
  }
  int64_t pid() const override { return 1; }

 private:
  Process* const process_;
};

Process::Process(World* world, std::string name, std::string address, double rate)
    : world_(world),
      name_(std::move(name)),
      address_(std::move(address)),
      rate_(rate),
      born_(world->now()),
      runtime_(std::make_shared<ProcessRuntime>(this)) {}

Process::~Process() = default;

absl::Time Process::LocalNow() const {
  if (!alive_) return absl::InfiniteFuture();
  return born_ + Scaled(world_->now() - born_, rate_);
}

absl::Time Process::ToWorld(absl::Time local) const {
  if (local == absl::InfiniteFuture() || local == absl::InfinitePast()) return local;
  // A little later rather than a rounding too early: a timer must find its time over.
  return born_ + Scaled(local - born_, 1 / rate_) + absl::Nanoseconds(10);
}

void Process::Start(std::function<void()> main) {
  fiber_ = std::make_unique<Fiber>([this, main = std::move(main)] {
    try {
      main();
      ended_ = true;
    } catch (const Killed&) {
    }
    alive_ = false;
  });
  world_->At(world_->now(), [self = shared_from_this()] {
    self->Run([self] {
      if (self->mu_ == nullptr) self->fiber_->Resume();
    });
  });
}

void Process::Kill() {
  if (!alive_) return;
  alive_ = false;
  held_.clear();
  if (mu_ != nullptr) {
    mu_ = nullptr;
    fiber_->Resume();  // unwinds
  }
}

void Process::Stop(absl::Duration how_long) {
  if (!alive_ || stopped_) return;
  stopped_ = true;
  world_->At(world_->now() + how_long, [self = shared_from_this()] {
    self->stopped_ = false;
    while (self->alive_ && !self->stopped_ && !self->held_.empty()) {
      std::function<void()> task = std::move(self->held_.front());
      self->held_.pop_front();
      self->Run(std::move(task));
    }
    // One of them may have been the last: the others may hold the process itself.
    if (!self->alive_) self->held_.clear();
  });
}

void Process::Run(std::function<void()> task) {
  if (!alive_) return;
  if (stopped_) {
    held_.push_back(std::move(task));
    return;
  }
  const auto self = shared_from_this();
  task();
  ResumeIfReady();
}

void Process::ResumeIfReady() {
  while (alive_ && mu_ != nullptr) {
    bool ready = LocalNow() >= deadline_;
    if (!ready) {
      absl::MutexLock lock(mu_);
      ready = condition_->Eval();
    }
    if (!ready) return;
    mu_ = nullptr;
    fiber_->Resume();
  }
}

void Process::WakeAt(absl::Time when) {
  if (when == absl::InfiniteFuture()) return;
  world_->At(ToWorld(when), [self = shared_from_this()] { self->Run([] {}); });
}

}  // namespace parley
