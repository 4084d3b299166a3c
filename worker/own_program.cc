#include "worker/own_program.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/torch/torch_status.h"
#include "common/daemon/command_line.h"
#include "common/daemon/daemon.h"
#include "common/daemon/exit_code.h"
#include "common/job/job_file.h"
#include "common/usable_cores.h"
#include "worker/preemption.h"
#include "worker/process_device.h"
#include "worker/threads.h"
#include "worker/training_end.h"
#include "worker/training_process.h"

namespace parley {

namespace {

// What it throws would end the process without a word to the others.
absl::Status Caught(const std::string& what, absl::FunctionRef<absl::Status()> call) {
  absl::Status status;
  try {
    const absl::Status thrown = CatchTorch(what, [&] { status = call(); });
    return thrown.ok() ? status : thrown;
  } catch (...) {
    return absl::InternalError(what + " has thrown something that is no std::exception");
  }
}

// What a worker is started with.
struct WorkerFlags {
  void AddTo(CLI::App& app) {
    AddDaemonFlags(app, daemon, /*with_coordinator=*/true);
    AddTraceFlag(app, trace_file);
  }
  DaemonFlags daemon;
  std::string trace_file;
};

// The options that the job gives the program. None where the job cannot be loaded, which is told
// when it is.
std::vector<std::string> ArgumentsOf(const std::string& job_file) {
  const auto job = LoadJob(job_file, {});
  if (!job.ok()) return {};
  const auto& of_model = job->model().own().arguments();
  const auto& of_data = job->data().own().arguments();
  std::vector<std::string> arguments(of_model.begin(), of_model.end());
  arguments.insert(arguments.end(), of_data.begin(), of_data.end());
  return arguments;
}

absl::Status Train(const OwnProgram& program, const OwnTraining& training) {
  const absl::Status status = Caught("the program's loop", [&] { return program.train(training); });
  if (!status.ok() || training.session.finished()) return status;
  return absl::InternalError(
      "the program's loop has returned before the job's end: Session::Finish says when that is");
}

}  // namespace

void OwnTraining::Begin() const {
  const int threads = ComputeThreads(job, UsableCores(), session.processes_here());
  at::set_num_threads(threads);
  steps.Begin(threads);
}

int RunOwnProgram(CLI::App& app, int argc, char** argv, const OwnProgram& program) {
  // Alone first, so that the others can be told what is wrong with the program's own options.
  WorkerFlags flags;
  CLI::App started("", app.get_name());
  started.set_help_flag();
  started.allow_extras();
  flags.AddTo(started);
  bool is_started = true;
  try {
    started.parse(argc, argv);
  } catch (const CLI::ParseError&) {
    is_started = false;  // told below
  }
  std::vector<const char*> words(argv, argv + argc);
  const std::vector<std::string> arguments = ArgumentsOf(flags.daemon.job);
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  WorkerFlags again;
  again.AddTo(app);
  const absl::StatusOr<bool> goes_on = ParseWords(app, words);
  if (goes_on.ok() && !*goes_on) return kFinished;
  if (!is_started) {
    std::fprintf(stderr, "%s\n", std::string(goes_on.status().message()).c_str());
    return kWrongUsage;
  }

  // In the log what the program prints stands between its other lines, and is not lost with it.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Preemption preemption;  // outlives the daemon's thread for signals
  Daemon daemon(WORKER, flags.daemon);
  if (absl::Status status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  if (absl::Status status = daemon.Serve({}); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  ProcessDevice device(daemon);
  TrainingProcess process = {daemon,  preemption, WORKER, flags.trace_file,
                             nullptr, nullptr,    nullptr};
  process.prepare = [&] {
    if (!goes_on.ok()) return goes_on.status();
    if (absl::Status chosen = device.Choose(); !chosen.ok()) return chosen;
    if (!program.prepare) return absl::OkStatus();
    return Caught("preparing", [&] { return program.prepare(daemon.job()); });
  };
  process.train = [&](Session& session, TrainingMetrics& metrics) {
    if (absl::Status opened = device.Open(session, metrics.trace()); !opened.ok()) return opened;
    StepRecord steps(session, metrics, daemon.log());
    absl::Status status = EndTraining(
        session, daemon.log(),
        Train(program, {daemon.job(), session, device.get(), steps, metrics, daemon.log()}));
    device.Over();
    return status;
  };
  return Run(process);
}

}  // namespace parley
