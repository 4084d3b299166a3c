#include "client/trace.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

using nlohmann::json;

constexpr char kTrainingThread[] = "training thread";

json Microseconds(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

}  // namespace

void Trace::Span(std::string what, absl::Time begin, absl::Time end) {
  Span(kTrainingThread, std::move(what), begin, end);
}

void Trace::Span(std::string lane, std::string what, absl::Time begin, absl::Time end) {
  Add({false, std::move(lane), std::move(what), begin, end});
}

void Trace::Call(std::string whom, std::string what, absl::Time begin, absl::Time end) {
  Add({true, std::move(whom), std::move(what), begin, end});
}

void Trace::Add(Event event) {
  absl::MutexLock lock(&mu_);
  if (events_.size() < most_) {
    events_.push_back(std::move(event));
  } else {
    ++left_out_;
  }
}

absl::Status Trace::WriteTo(const std::string& path, const std::string& process) const {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  const auto failed = [&] {
    return absl::UnavailableError(
        absl::StrCat("the trace ", path, " cannot be written: ", std::strerror(errno)));
  };
  if (file == nullptr) return failed();
  // Event by event: all of them as one value would take a few times the memory.
  const auto write = [file](const json& event) {
    std::fputs(event.dump(-1, ' ', false, json::error_handler_t::replace).c_str(), file);
  };
  std::fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
  write({{"ph", "M"}, {"pid", 1}, {"name", "process_name"}, {"args", {{"name", process}}}});
  std::map<std::string, int> lanes;  // to threads, as far as the format knows
  const auto lane = [&](const std::string& name) {
    const auto [found, is_new] = lanes.emplace(name, static_cast<int>(lanes.size()) + 1);
    if (is_new) {
      std::fputs(",\n", file);
      write({{"ph", "M"},
             {"pid", 1},
             {"tid", found->second},
             {"name", "thread_name"},
             {"args", {{"name", name}}}});
    }
    return found->second;
  };
  const int training_thread = lane(kTrainingThread);
  absl::MutexLock lock(&mu_);
  uint64_t call = 0;
  // By the wall clock, so that the traces of several processes lie side by side.
  const absl::Time epoch = absl::UnixEpoch() - WallAheadOfSteady();
  for (const Event& event : events_) {
    const json begin = Microseconds(event.begin - epoch);
    if (!event.call) {
      const int thread = lane(event.whom);
      std::fputs(",\n", file);
      write({{"ph", "X"},
             {"pid", 1},
             {"tid", thread},
             {"name", event.what},
             {"ts", begin},
             {"dur", Microseconds(event.end - event.begin)}});
      continue;
    }
    // Asynchronous ones: a lane for each that overlaps with others.
    json half = {{"ph", "b"},         {"pid", 1},     {"tid", training_thread},
                 {"cat", event.whom}, {"id", ++call}, {"name", event.what},
                 {"ts", begin}};
    std::fputs(",\n", file);
    write(half);
    std::fputs(",\n", file);
    half["ph"] = "e";
    half["ts"] = Microseconds(event.end - epoch);
    write(half);
  }
  std::fprintf(file, "\n],\"otherData\":{\"events_left_out\":%llu}}\n",
               static_cast<unsigned long long>(left_out_));
  const bool bad = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || bad) return failed();
  return absl::OkStatus();
}

}  // namespace parley
