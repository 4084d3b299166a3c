#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_connector.h"
#include "client/parley/ask_coordinator.h"
#include "client/parley/checkpoint_now.h"
#include "client/parley/checkpoint_text.h"
#include "client/parley/command.h"
#include "client/parley/coordinator_silence.h"
#include "client/parley/status_query.h"
#include "common/checkpoint/export.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/verify.h"
#include "common/clock/steady_now.h"
#include "common/daemon/exit_code.h"
#include "common/file_system.h"

namespace parley {
namespace {

struct Options {
  std::string directory;
  std::string out;
  CoordinatorArgument job;
  double timeout = 600;  // seconds
};

// Whether what the user has named is no checkpoint at all. A `latest` whose checkpoint is lost
// tells of one that was there.
bool IsNone(FileSystem& files, const std::string& directory) {
  return absl::IsNotFound(ResolveCheckpoint(files, directory).status());
}

// Of what was asked about a checkpoint: what is damaged, by whatever, is a failure, and a wrong DIR
// wrong usage.
int EndOfReading(FileSystem& files, const Options& options, const absl::Status& status,
                 const std::string& text) {
  const int end = End(status, text);
  if (status.ok()) return end;
  return IsNone(files, options.directory) ? kWrongUsage : kFailed;
}

int Inspect(const Options& options) {
  const auto files = PosixFileSystem();
  // Sizes, and that every element is there once; the sums are for `verify`.
  const auto reader = CheckpointReader::Open(*files, options.directory);
  if (!reader.ok()) return EndOfReading(*files, options, reader.status(), "");
  return End(absl::OkStatus(), CheckpointText((*reader)->folder(), (*reader)->manifest()));
}

int Verify(const Options& options) {
  const auto files = PosixFileSystem();
  const auto status = VerifyCheckpoint(*files, options.directory);
  return EndOfReading(*files, options, status, absl::StrCat(options.directory, ": whole\n"));
}

int Export(const Options& options) {
  const auto files = PosixFileSystem();
  const std::string out = options.out.empty() ? "." : options.out;
  const auto status = ExportCheckpoint(*files, options.directory, out);
  if (absl::IsFailedPrecondition(status)) {
    return Exit(kWrongUsage, absl::StrCat("--out=", status.message()));
  }
  return EndOfReading(*files, options, status,
                      absl::StrCat(out, "/model.safetensors\n", out, "/optimizer.safetensors\n"));
}

// Of a job that trains: asks, and waits for the end of it.
absl::StatusOr<std::string> CheckpointNow(const Options& options,
                                          const SharedCredentials& credentials) {
  const auto files = PosixFileSystem();
  const auto connector = MakeGrpcConnector(/*direct=*/false, credentials);
  const absl::Time deadline = SteadyNow() + absl::Seconds(options.timeout);
  const auto asked = AskCoordinator(*connector, *files, options.job.coordinator,
                                    &CoordinatorClient::AskForCheckpoint, AskForCheckpointRequest(),
                                    absl::Seconds(5));
  if (!asked.ok()) return asked.status();
  std::fprintf(stderr, "asked for a checkpoint after step %llu; waiting until it is whole\n",
               static_cast<unsigned long long>(asked->step()));
  CoordinatorSilence silence(SteadyNow());
  while (true) {
    const auto status = QueryStatus(*connector, *files, options.job.coordinator, absl::Seconds(5));
    if (status.ok()) {
      if (auto end = EndOfCheckpoint(*asked, *status)) return *std::move(end);
    }
    const absl::Time now = SteadyNow();
    const absl::Status gone = silence.Heard(status.status(), now, "the checkpoint");
    if (!gone.ok()) return gone;
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no whole checkpoint after ", options.timeout, " s; it may still come: `parley status`",
          status.ok() ? "" : absl::StrCat(". ", std::string(status.status().message()))));
    }
    absl::SleepFor(absl::Milliseconds(200));
  }
}

}  // namespace

Command AddCheckpoint(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  const auto chosen = std::make_shared<Command>();
  subcommand.require_subcommand(0, 1);
  const auto add = [&](const char* name, const char* what, int (*function)(const Options&)) {
    CLI::App* action = subcommand.add_subcommand(name, what);
    action->add_option("DIR", options->directory, "Folder of a step, or the folder with `latest`")
        ->required();
    action->callback([=] { *chosen = [=] { return function(*options); }; });
    return action;
  };
  add("inspect", "Shows step, files and tensors", Inspect);
  add("verify", "Reads all and checks every sum; exit status 1 names what is damaged", Verify);
  add("export", "Writes model.safetensors and optimizer.safetensors with PyTorch's names", Export)
      ->add_option("--out", options->out, "Folder for the two files; default: here");
  AddCoordinatorArgument(subcommand, options->job, /*required=*/false);
  subcommand
      .add_option("--timeout", options->timeout, "With --coordinator: how long to wait, in seconds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return [chosen, options, help = &subcommand]() -> int {
    if (*chosen) return (*chosen)();
    if (!options->job.coordinator.empty()) {
      const FoundCredentials found = FindCredentials(options->job);
      if (found.exit) return *found.exit;
      const auto folder = CheckpointNow(*options, found.credentials);
      return End(folder.status(), folder.ok() ? absl::StrCat(*folder, "\n") : "");
    }
    std::fputs(help->help().c_str(), stderr);
    return kWrongUsage;
  };
}

}  // namespace parley
