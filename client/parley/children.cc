#include "client/parley/children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// Between two looks at the children; SIGCHLD makes it shorter.
constexpr absl::Duration kLook = absl::Milliseconds(50);

}  // namespace

Children::~Children() {
  for (Child& child : children_) child.process.Signal(SIGKILL);
  while (!AllEnded()) {
    Reap();
    if (!AllEnded()) absl::SleepFor(absl::Milliseconds(1));
  }
}

absl::Status Children::Start(const std::string& name, const std::string& log,
                             const std::vector<std::string>& arguments) {
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat(log, " cannot be written"));
  auto process = ChildProcess::Start(arguments, {.out = file, .err = file});
  close(file);
  if (!process.ok()) return process.status();
  children_.push_back({name, log, *process, std::nullopt});
  return absl::OkStatus();
}

std::vector<size_t> Children::Reap() {
  std::vector<size_t> ended;
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].exit) continue;
    children_[i].exit = children_[i].process.TryWait();
    if (children_[i].exit) ended.push_back(i);
  }
  return ended;
}

void Children::Signal(int signal, const std::function<bool(const std::string& name)>& whom) {
  for (Child& child : children_) {
    if (!child.exit && whom(child.name)) child.process.Signal(signal);
  }
}

bool Children::End(absl::Duration grace, SignalInbox& signals) {
  bool killed = false;
  for (Child& child : children_) child.process.Signal(SIGINT);
  absl::Time kill_at = SteadyNow() + grace;
  while (Reap(), !AllEnded()) {
    if (SteadyNow() >= kill_at) {
      for (Child& child : children_) child.process.Signal(SIGKILL);
      killed = true;
      kill_at = absl::InfiniteFuture();
    }
    if (signals.Wait(std::min(kLook, kill_at - SteadyNow())) != 0) kill_at = absl::InfinitePast();
  }
  return killed;
}

bool Children::AllEnded() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.exit.has_value(); });
}

void Children::SetNameAndLog(size_t index, const std::string& name, const std::string& log) {
  children_[index].name = name;
  children_[index].log = log;
}

}  // namespace parley
