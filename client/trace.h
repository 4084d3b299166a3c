#ifndef PARLEY_CLIENT_TRACE_H_
#define PARLEY_CLIENT_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace parley {

// What a worker did and when, to be looked at in a browser: the training thread's phases and waits,
// its calls, which overlap with them, and what others do beside it. Kept in memory until it is
// written, as Chrome's trace events (JSON), which chrome://tracing and ui.perfetto.dev show.
// Thread-safe.
class Trace {
 public:
  // Events after the first `most` are only counted: some 100 bytes each.
  explicit Trace(size_t most = 1'000'000) : most_(most) {}

  // One thing after the other, or within each other: phases and waits.
  void Span(std::string what, absl::Time begin, absl::Time end);
  // The same of somebody else who is at work beside that thread, in a lane of this name: "GPU:
  // compute".
  void Span(std::string lane, std::string what, absl::Time begin, absl::Time end);
  // A call to `whom`; calls may overlap.
  void Call(std::string whom, std::string what, absl::Time begin, absl::Time end);

  // Unavailable where the file cannot be written. process: what it is called there.
  absl::Status WriteTo(const std::string& path, const std::string& process) const;

 private:
  struct Event {
    bool call = false;  // else a span
    std::string whom;   // whom it calls; or a span's lane
    std::string what;
    absl::Time begin;
    absl::Time end;
  };
  void Add(Event event);

  const size_t most_;
  mutable absl::Mutex mu_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mu_);
  uint64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TRACE_H_
