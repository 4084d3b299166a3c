#ifndef PARLEY_COMMON_DAEMON_EXIT_CODE_H_
#define PARLEY_COMMON_DAEMON_EXIT_CODE_H_

namespace parley {

// Exit status of every program (docs/operating.md); scripts rely on it.
enum ExitCode : int {
  kFinished = 0,  // as asked
  kFailed = 1,  // the last line on stderr is the first cause, the same in every process of the job
  kWrongUsage = 2,  // command line, job file, or a file that it names
  kPreempted = 75,  // by SIGTERM or SIGUSR1
};

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_EXIT_CODE_H_
