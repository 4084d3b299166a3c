#ifndef PARLEY_TESTS_SIMULATION_WORLD_H_
#define PARLEY_TESTS_SIMULATION_WORLD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace parley {

// The one clock and the one order of all that happens in a simulation. Everything random derives
// from its seed, so that a seed is a course of events, again and again. One thread.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  absl::Time now() const { return now_; }
  std::mt19937_64& random() { return random_; }
  // True with probability p.
  bool Chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  // Between low and high.
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + (high - low) * std::uniform_real_distribution<>(0, 1)(random_);
  }
  uint64_t Pick(uint64_t count) { return random_() % count; }

  // Runs `event` when it is `when`; at once, but never inside this call, if that is over. Those of
  // one time run in the order of the calls.
  void At(absl::Time when, std::function<void()> event) {
    const size_t slot = free_.empty() ? runs_.size() : free_.back();
    if (free_.empty()) {
      runs_.push_back(std::move(event));
    } else {
      free_.pop_back();
      runs_[slot] = std::move(event);
    }
    events_.push_back({std::max(when, now_), calls_++, slot});
    std::push_heap(events_.begin(), events_.end(), Later());
  }

  // Runs the next event at its time; false if there is none.
  bool RunNext() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), Later());
    const Event next = events_.back();
    events_.pop_back();
    now_ = next.when;
    const std::function<void()> event = std::exchange(runs_[next.slot], nullptr);
    free_.push_back(next.slot);
    ++events_run_;
    event();
    return true;
  }

  uint64_t events_run() const { return events_run_; }

 private:
  struct Event {
    absl::Time when;
    uint64_t call;
    size_t slot;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(a.when, a.call) > std::tie(b.when, b.call);
    }
  };

  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::mt19937_64 random_;
  uint64_t calls_ = 0;
  uint64_t events_run_ = 0;
  std::vector<Event> events_;  // a heap, the next one first
  // What they run, apart: the heap moves its entries often.
  std::vector<std::function<void()>> runs_;
  std::vector<size_t> free_;  // places in it
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_WORLD_H_
