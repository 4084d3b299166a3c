#include "common/log.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/utc_text.h"

namespace parley {
namespace {

// How long who logs waits for the line to be written: much less than anything else in a job takes.
constexpr absl::Duration kPatience = absl::Seconds(1);

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

std::string Quoted(const std::string& value) {
  bool plain = !value.empty();
  for (const char c : value)
    plain = plain && c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
  return plain ? value : absl::StrCat("\"", absl::Utf8SafeCEscape(value), "\"");
}

// A message is a sentence: spaces are welcome, line breaks are not.
std::string OneLine(std::string message) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return message;
}

}  // namespace

std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level, const std::string& who,
                          const std::string& message, const LogPairs& pairs) {
  const std::string stamp = FormatUtc(time);
  if (format == LogFormat::kJson) {
    nlohmann::ordered_json line;
    line["time"] = stamp;
    line["level"] = LevelName(level);
    line["who"] = who;
    line["message"] = message;
    // No pair takes the place of what every line has.
    for (const auto& [key, value] : pairs) line[line.contains(key) ? key + "_" : key] = value;
    return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  std::string line = absl::StrCat(stamp, " ", LevelName(level), " ", who, " ", OneLine(message));
  for (const auto& [key, value] : pairs) absl::StrAppend(&line, " ", key, "=", Quoted(value));
  return line;
}

void Log::SetWho(const std::string& who) {
  absl::MutexLock lock(&mu_);
  who_ = who;
}

void Log::Info(const std::string& message, const LogPairs& pairs) {
  Write(LogLevel::kInfo, message, pairs);
}

void Log::Warning(const std::string& message, const LogPairs& pairs) {
  Write(LogLevel::kWarning, message, pairs);
}

void Log::Error(const std::string& message, const LogPairs& pairs) {
  Write(LogLevel::kError, message, pairs);
}

void Log::Write(LogLevel level, const std::string& message, const LogPairs& pairs) {
  {
    absl::MutexLock lock(&mu_);
    LogPairs all = pairs;
    if (dropped_ != 0) all.emplace_back("lines_lost_before", absl::StrCat(dropped_));
    // One write a line, so that the lines of processes that share a file do not mix.
    const std::string line = FormatLogLine(format_, absl::Now(), level, who_, message, all) + "\n";
    if (sink_) return sink_(line);
    dropped_ = stderr_->Add(line) ? 0 : dropped_ + 1;
  }
  if (!stderr_->is_late()) (void)stderr_->Await(kPatience);
}

bool Log::Last(const std::string& line) {
  {
    absl::MutexLock lock(&mu_);
    if (sink_) {
      sink_(line + "\n");
      return true;
    }
    (void)stderr_->Add(line + "\n", /*whatever_waits=*/true);
  }
  return stderr_->Await(kPatience);
}

}  // namespace parley
