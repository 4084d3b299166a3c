// parley scale, parley drain, parley stop: what an operator tells a running job.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_connector.h"
#include "client/parley/ask_coordinator.h"
#include "client/parley/command.h"
#include "client/parley/coordinator_silence.h"
#include "client/parley/scale_text.h"
#include "client/parley/status_query.h"
#include "client/parley/stop_end.h"
#include "common/clock/steady_now.h"
#include "common/file_system.h"

namespace parley {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(5);

struct Options {
  CoordinatorArgument job;
  std::string what;
  uint32_t workers = 0;
  std::string member;
  bool wait = false;
  double timeout = 900;  // seconds
};

int Scale(const Options& options) {
  const auto files = PosixFileSystem();
  const FoundCredentials found = FindCredentials(options.job);
  if (found.exit) return *found.exit;
  const auto connector = MakeGrpcConnector(/*direct=*/false, found.credentials);
  SetWorkersRequest request;
  request.set_workers(options.workers);
  const auto reply = AskCoordinator(*connector, *files, options.job.coordinator,
                                    &CoordinatorClient::SetWorkers, request, kAnswer);
  return End(reply.status(), reply.ok() ? ScaleText(*reply, options.workers,
                                                    WorkerStartOf(*files, options.job.coordinator,
                                                                  options.job.credentials))
                                        : "");
}

int Drain(const Options& options) {
  const auto request = DrainOf(options.member);
  if (!request.ok()) return End(request.status(), "");
  const auto files = PosixFileSystem();
  const FoundCredentials found = FindCredentials(options.job);
  if (found.exit) return *found.exit;
  const auto connector = MakeGrpcConnector(/*direct=*/false, found.credentials);
  const auto reply = AskCoordinator(*connector, *files, options.job.coordinator,
                                    &CoordinatorClient::Drain, *request, kAnswer);
  return End(reply.status(), absl::StrCat(options.member,
                                          " goes as soon as its step is done; its place stays "
                                          "empty until `parley scale` asks for more workers\n"));
}

// The folder of the checkpoint, once the job has ended.
absl::StatusOr<std::string> AwaitEnd(Connector& connector, FileSystem& files,
                                     const Options& options, const StopReply& told) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(options.timeout);
  CoordinatorSilence silence(SteadyNow());
  while (true) {
    const auto status = QueryStatus(connector, files, options.job.coordinator, kAnswer);
    const absl::Time now = SteadyNow();
    if (status.ok()) {
      if (auto end = EndOfStop(told, *status)) return *std::move(end);
    }
    const absl::Status gone = silence.Heard(status.status(), now, "how the job ended");
    if (!gone.ok()) return gone;
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the job has not ended after ", options.timeout, " s; it still may: `parley status`"));
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
}

int Stop(const Options& options) {
  const auto files = PosixFileSystem();
  const FoundCredentials found = FindCredentials(options.job);
  if (found.exit) return *found.exit;
  const auto connector = MakeGrpcConnector(/*direct=*/false, found.credentials);
  const auto told = AskCoordinator(*connector, *files, options.job.coordinator,
                                   &CoordinatorClient::Stop, StopRequest(), kAnswer);
  if (!told.ok()) return End(told.status(), "");
  std::fprintf(stderr, "told to stop after step %llu; it ends when a checkpoint is whole\n",
               static_cast<unsigned long long>(told->step()));
  if (!options.wait) return kFinished;
  const auto folder = AwaitEnd(*connector, *files, options, *told);
  return End(folder.status(), folder.ok() && !folder->empty() ? absl::StrCat(*folder, "\n") : "");
}

}  // namespace

Command AddScale(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.add_option("WHAT", options->what, "workers")
      ->required()
      ->check(CLI::IsMember({"workers"}));
  subcommand.add_option("N", options->workers, "So many of them from now on")
      ->required()
      ->check(CLI::PositiveNumber);
  AddCoordinatorArgument(subcommand, options->job);
  return [options] { return Scale(*options); };
}

Command AddDrain(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  subcommand.add_option("MEMBER", options->member, "As `parley status` names it: worker-3")
      ->required();
  AddCoordinatorArgument(subcommand, options->job);
  return [options] { return Drain(*options); };
}

Command AddStop(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  AddCoordinatorArgument(subcommand, options->job);
  subcommand.add_flag("--wait", options->wait,
                      "Waits until the job has ended, and prints the checkpoint's folder");
  subcommand.add_option("--timeout", options->timeout, "With --wait: how long, in seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [options] { return Stop(*options); };
}

}  // namespace parley
