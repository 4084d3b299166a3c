#ifndef PARLEY_TESTS_SIMULATION_PROCESS_H_
#define PARLEY_TESTS_SIMULATION_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/runtime.h"
#include "tests/simulation/fiber.h"
#include "tests/simulation/world.h"

namespace parley {

// What unwinds the main fiber of a process that is killed while it waits without a deadline. (Other
// waits just end: they may be in a destructor.)
struct Killed {};

// A process of a simulated job: a main function on a fiber, timers, and what comes from the
// network, all run by the world's events. It can be killed at any of its waits (as SIGKILL: nothing
// of it happens any more, and nobody is told), stopped and continued (SIGSTOP, SIGCONT), and its
// clock may run fast or slow. A restarted process is a new one.
class Process : public std::enable_shared_from_this<Process> {
 public:
  // rate: how much faster than the world's its clock runs; 1 is right.
  Process(World* world, std::string name, std::string address, double rate);
  ~Process();

  // Starts it. `main` returns when the process ends.
  void Start(std::function<void()> main);

  // All that it has ends: its clock says that every deadline is over, no timer runs, and nobody
  // hears of it any more; so its main function comes to its end, and what it has is destroyed.
  void Kill();
  void Stop(absl::Duration how_long);

  // Runs `task` as this process's: now, or when it goes on if it is stopped; never if it is dead.
  void Run(std::function<void()> task);

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }
  bool ended() const { return ended_; }  // by itself

  // How often it has taken part anew: each time with another incarnation.
  uint64_t incarnations() const { return incarnations_; }

  World& world() { return *world_; }
  std::shared_ptr<Runtime> runtime() { return runtime_; }
  absl::Time LocalNow() const;
  absl::Time ToWorld(absl::Time local) const;

 private:
  class ProcessRuntime;
  class ProcessTimers;

  void ResumeIfReady();
  void WakeAt(absl::Time when);

  World* const world_;
  const std::string name_;
  const std::string address_;
  const double rate_;
  const absl::Time born_;
  std::shared_ptr<Runtime> runtime_;
  std::unique_ptr<Fiber> fiber_;
  uint64_t incarnations_ = 0;
  bool alive_ = true;
  bool ended_ = false;
  bool stopped_ = false;
  std::deque<std::function<void()>> held_;  // while it is stopped

  // What the main fiber waits for.
  absl::Mutex* mu_ = nullptr;
  const absl::Condition* condition_ = nullptr;
  absl::Time deadline_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_PROCESS_H_
