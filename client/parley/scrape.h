#ifndef PARLEY_CLIENT_PARLEY_SCRAPE_H_
#define PARLEY_CLIENT_PARLEY_SCRAPE_H_

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace parley {

// By address (host:port): the text of its /metrics, or why there is none. DeadlineExceeded: it does
// not answer in time; Unavailable: nobody is there; else what it answers is none.
using Scrapes = std::map<std::string, absl::StatusOr<std::string>>;

// GET /metrics of all of them at once. Blocks for `timeout` at most, and for as long as the system
// takes to find the hosts that are given by name.
Scrapes ScrapeAll(absl::Span<const std::string> addresses, absl::Duration timeout);

// ScrapeAll again and again, without making its owner wait: each round has a thread of its own.
// Used by one thread.
class ScrapePoller {
 public:
  explicit ScrapePoller(absl::Duration timeout) : timeout_(timeout) {}
  ~ScrapePoller();  // waits for the open round
  ScrapePoller(const ScrapePoller&) = delete;
  ScrapePoller& operator=(const ScrapePoller&) = delete;

  // Begins a round, unless one is open.
  void Ask(std::vector<std::string> addresses);

  // The answers of the round that has ended since the last call.
  std::optional<Scrapes> Take();

 private:
  const absl::Duration timeout_;
  std::thread round_;  // joinable: from Ask to Take
  std::atomic<bool> ended_ = false;
  Scrapes scrapes_;  // the round's until it has ended
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_SCRAPE_H_
