#ifndef PARLEY_COMMON_LOG_H_
#define PARLEY_COMMON_LOG_H_

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/bounded_writer.h"

namespace parley {

enum class LogLevel { kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Key and value of a log line; the key is a word.
using LogPairs = std::vector<std::pair<std::string, std::string>>;

// One line of log, without the newline: time (UTC, ms), level, who ("worker-1"), message, key=value
// pairs. A value with spaces, quotes or control characters is quoted, so that a line stays one
// line.
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level, const std::string& who,
                          const std::string& message, const LogPairs& pairs);

// Writes log lines to stderr, one write each. A process has one, made in its main and passed on.
// A line waits a second at most until it is written, and no longer at all while an earlier one is
// not: stderr may be a file whose disk answers no more, and nobody is to stand still for that. The
// lines come later, as many as BoundedWriter keeps. Thread-safe.
class Log {
 public:
  Log(LogFormat format, std::string who)
      : format_(format),
        stderr_(std::make_unique<BoundedWriter>(STDERR_FILENO)),
        who_(std::move(who)) {}
  // The lines go to `sink` rather than to stderr.
  Log(LogFormat format, std::string who, std::function<void(const std::string& line)> sink)
      : format_(format), sink_(std::move(sink)), who_(std::move(who)) {}

  // Who speaks, once the ordinal is known.
  void SetWho(const std::string& who);

  void Info(const std::string& message, const LogPairs& pairs = {});
  void Warning(const std::string& message, const LogPairs& pairs = {});
  // Says what failed, who (host:port, member), since when, and what to do.
  void Error(const std::string& message, const LogPairs& pairs = {});

  // A process's last line, as it is, after all others. Whether it is written; waits a second for it
  // at most, whatever was late before.
  bool Last(const std::string& line);

 private:
  void Write(LogLevel level, const std::string& message, const LogPairs& pairs);

  const LogFormat format_;
  const std::function<void(const std::string&)> sink_;
  const std::unique_ptr<BoundedWriter> stderr_;  // nullptr: there is a sink
  absl::Mutex mu_;
  std::string who_ ABSL_GUARDED_BY(mu_);
  uint64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;  // lines, since the last one that was taken
};

}  // namespace parley

#endif  // PARLEY_COMMON_LOG_H_
