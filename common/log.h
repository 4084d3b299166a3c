#ifndef PARLEY_COMMON_LOG_H_
#define PARLEY_COMMON_LOG_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

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
// Thread-safe.
class Log {
 public:
  Log(LogFormat format, std::string who) : format_(format), who_(std::move(who)) {}
  // The lines go to `sink` rather than to stderr.
  Log(LogFormat format, std::string who, std::function<void(const std::string& line)> sink)
      : format_(format), sink_(std::move(sink)), who_(std::move(who)) {}

  // Who speaks, once the ordinal is known.
  void SetWho(const std::string& who);

  void Info(const std::string& message, const LogPairs& pairs = {});
  void Warning(const std::string& message, const LogPairs& pairs = {});
  // Says what failed, who (host:port, member), since when, and what to do.
  void Error(const std::string& message, const LogPairs& pairs = {});

 private:
  void Write(LogLevel level, const std::string& message, const LogPairs& pairs);

  const LogFormat format_;
  const std::function<void(const std::string&)> sink_;
  absl::Mutex mu_;
  std::string who_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_LOG_H_
