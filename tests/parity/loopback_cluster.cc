#include "tests/parity/loopback_cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/job/job_file.h"
#include "tests/parity/job_text.h"

namespace parley {

LoopbackCluster::LoopbackCluster(const std::string& coordinator, const std::string& shard,
                                 const std::string& text) {
  std::string directory = "/tmp/parity_clusterXXXXXX";
  directory_ = mkdtemp(directory.data());
  const std::string path = WriteJob(directory_, text);
  const auto job = LoadJob(path, {});
  if (!job.ok()) {
    std::fprintf(stderr, "%s\n", job.status().ToString().c_str());
    return;
  }
  job_ = *job;
  processes_.push_back(Start({coordinator, "--job=" + path, "--out=" + directory_ + "/out"},
                             directory_ + "/coordinator.log"));
  for (uint32_t i = 0; i < job_.cluster().shards(); ++i) {
    processes_.push_back(Start({shard, "--job=" + path, "--coordinator=" + this->coordinator()},
                               directory_ + "/shard-" + std::to_string(i) + ".log"));
  }
}

LoopbackCluster::~LoopbackCluster() {
  for (const pid_t process : processes_) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  std::filesystem::remove_all(directory_);
}

std::vector<int> LoopbackCluster::Wait() {
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  std::vector<int> codes;
  for (const pid_t process : processes_) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(process, &status, WNOHANG)) == 0 && SteadyNow() < deadline) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    if (ended == 0) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
    codes.push_back(ended == process && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  processes_.clear();
  return codes;
}

pid_t LoopbackCluster::Start(const std::vector<std::string>& command, const std::string& log) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t process = 0;
  if (posix_spawn(&process, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) {
    std::perror(arguments[0]);
    std::exit(1);
  }
  posix_spawn_file_actions_destroy(&actions);
  return process;
}

}  // namespace parley
