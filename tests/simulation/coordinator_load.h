#ifndef PARLEY_TESTS_SIMULATION_COORDINATOR_LOAD_H_
#define PARLEY_TESTS_SIMULATION_COORDINATOR_LOAD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "client/coordinator_client.h"

namespace parley {

// What a simulated coordinator has to do: calls and bytes of each method, the busiest second, and
// the processor time that its core really took. One thread.
class CoordinatorLoad {
 public:
  struct Counts {
    uint64_t calls = 0;
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;

    void Add(const Counts& more) {
      calls += more.calls;
      bytes_in += more.bytes_in;
      bytes_out += more.bytes_out;
    }
  };

  // `coordinator` as it is to be served; it must not outlive this. now: in virtual time.
  std::shared_ptr<CoordinatorClient> Listen(std::shared_ptr<CoordinatorClient> coordinator,
                                            std::function<absl::Time()> now);

  // By the name of the request: "JoinRequest".
  const std::map<std::string, Counts, std::less<>>& methods() const { return methods_; }
  Counts Of(std::string_view request) const;
  Counts Total() const;
  // What the busiest second of virtual time had, of each of the three.
  Counts Peak() const;
  absl::Duration processor_time() const { return processor_time_; }

  // A table of all, of a job that took so long in virtual time.
  std::string Table(absl::Duration took) const;

 private:
  class Listener;

  std::map<std::string, Counts, std::less<>> methods_;
  std::map<int64_t, Counts> seconds_;  // since the epoch
  absl::Duration processor_time_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_COORDINATOR_LOAD_H_
