#include "client/parley/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client/parley/signal_inbox.h"
#include "common/daemon/signals.h"

namespace parley {
namespace {

// All that happens between fork and exec. Other threads (gRPC's) may have held any lock at the
// fork, so nothing here but what is async-signal-safe. Returns errno.
int Become(char* const* arguments, const ChildProcess::Files& files, int null, pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  // The parent may have gone before that call.
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &by_default, nullptr);
  if (dup2(null, STDIN_FILENO) < 0 || dup2(files.out >= 0 ? files.out : null, STDOUT_FILENO) < 0 ||
      dup2(files.err >= 0 ? files.err : null, STDERR_FILENO) < 0) {
    return errno;
  }
  if (files.kept >= 0 && fcntl(files.kept, F_SETFD, 0) != 0) return errno;
  execv(arguments[0], arguments);
  return errno;
}

}  // namespace

std::string Describe(const ChildExit& exit) {
  if (exit.signal != 0) return absl::StrCat("was ended by ", SignalName(exit.signal));
  return absl::StrCat("ended with exit status ", exit.code);
}

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments,
                                                 Files files) {
  std::vector<char*> words;
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);

  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  int report[2] = {-1, -1};  // errno of a child that could not become the program
  if (null < 0 || pipe2(report, O_CLOEXEC) != 0) {
    const int error = errno;
    if (null >= 0) close(null);
    return absl::ErrnoToStatus(error, absl::StrCat(arguments[0], " cannot be started"));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    const int error = Become(words.data(), files, null, parent);
    [[maybe_unused]] const ssize_t written = write(report[1], &error, sizeof error);
    _exit(127);
  }
  int error = pid < 0 ? errno : 0;
  close(null);
  close(report[1]);
  if (pid > 0) {
    ssize_t got = 0;
    do {
      got = read(report[0], &error, sizeof error);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) error = 0;  // closed by exec
    if (error != 0) waitpid(pid, nullptr, 0);
  }
  close(report[0]);
  if (error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat(arguments[0], " cannot be started"));
  }
  return ChildProcess(pid);
}

std::optional<ChildExit> ChildProcess::TryWait() {
  if (exit_) return exit_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  if (WIFSIGNALED(status)) {
    exit_ = ChildExit{.code = 0, .signal = WTERMSIG(status)};
  } else {
    exit_ = ChildExit{.code = WEXITSTATUS(status), .signal = 0};
  }
  return exit_;
}

void ChildProcess::Signal(int signal) {
  if (exit_) return;
  // The group exists from the child's own setpgid on; before, the process alone is there.
  if (kill(-pid_, signal) != 0) kill(pid_, signal);
}

}  // namespace parley
