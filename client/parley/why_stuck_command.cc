// parley why-stuck: who of a job waits for whom, and who holds it up.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/coordinator_address.h"
#include "client/grpc_connector.h"
#include "client/parley/ask_waits.h"
#include "client/parley/command.h"
#include "client/parley/status_query.h"
#include "client/parley/stuck_job.h"
#include "client/parley/stuck_text.h"
#include "client/parley/wait_graph.h"
#include "common/clock/steady_now.h"
#include "common/file_system.h"

namespace parley {
namespace {

// Who does not answer in this time is silent: nobody computes anything for the answer.
constexpr absl::Duration kAnswer = absl::Seconds(2);
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kLongest = absl::Hours(24);

struct Options {
  CoordinatorArgument job;
  std::string out;
  std::string format = "text";
  std::string longer_than = "2s";
};

// One that is only slow to take the connection has the whole time to answer.
absl::StatusOr<GetStatusReply> AskStatus(Connector& connector, FileSystem& files,
                                         const std::string& coordinator) {
  const absl::Time deadline = SteadyNow() + kAnswer;
  while (true) {
    auto status = QueryStatus(connector, files, coordinator, deadline - SteadyNow());
    if (!absl::IsUnavailable(status.status()) || SteadyNow() + kPause >= deadline) return status;
    absl::SleepFor(kPause);
  }
}

// The job's directory: --out, or where the coordinator's address file lies.
std::string JobDirectoryOf(const Options& options) {
  if (!options.out.empty()) return options.out;
  if (!absl::StartsWith(options.job.coordinator, "file:")) return "";
  const std::string path = options.job.coordinator.substr(5);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// The members that the coordinator has last written into the job's directory. It may have gone.
std::vector<Askable> LastKnown(FileSystem& files, const std::string& directory) {
  if (directory.empty()) return {};
  const auto json = ReadWholeFile(files, absl::StrCat(directory, "/targets.json"),
                                  /*limit=*/16 << 20);
  if (!json.ok()) return {};
  return AskablesOfTargets(*json).value_or(std::vector<Askable>());
}

// The answers of all, those without a server included.
std::vector<AskedProcess> AskAll(const std::vector<Askable>& askables,
                                 const SharedCredentials& credentials) {
  std::vector<std::string> addresses;
  for (const Askable& askable : askables) {
    if (!askable.address.empty()) addresses.push_back(askable.address);
  }
  const auto replies = AskWaits(addresses, credentials, kAnswer);
  std::vector<AskedProcess> asked;
  size_t next = 0;
  for (const Askable& askable : askables) {
    asked.push_back(askable.address.empty() ? Asked(askable, absl::NotFoundError(""))
                                            : Asked(askable, replies[next++]));
  }
  return asked;
}

int Run(const Options& options) {
  StuckReport report;
  if (!absl::ParseDuration(options.longer_than, &report.longer_than) ||
      report.longer_than < absl::ZeroDuration() || report.longer_than > kLongest) {
    return Exit(kWrongUsage, absl::StrCat("--longer_than: '", options.longer_than,
                                          "' is no duration such as 2s"));
  }
  const auto files = PosixFileSystem();
  const FoundCredentials found = FindCredentials(options.job);
  if (found.exit) return *found.exit;
  const auto connector = MakeGrpcConnector(/*direct=*/false, found.credentials);
  const auto status = AskStatus(*connector, *files, options.job.coordinator);
  if (absl::IsInvalidArgument(status.status())) {
    return Exit(kWrongUsage, std::string(status.status().message()));
  }
  const std::string address =
      ResolveCoordinator(*files, options.job.coordinator).value_or(std::string());
  std::vector<Askable> askables;
  if (status.ok()) {
    report.job = status->job();
    report.phase = absl::AsciiStrToLower(Phase_Name(status->phase()));
    if (status->phase() == FAILED) {
      report.ended = absl::StrCat("the job has failed: ", status->cause().text());
    } else if (status->phase() == FINISHED) {
      report.ended = "none: the job has finished";
    } else {
      askables = AskablesOf(address, *status);
    }
  } else {
    std::fprintf(stderr, "%s\n", std::string(status.status().message()).c_str());
    askables = LastKnown(*files, JobDirectoryOf(options));
    if (askables.empty()) {
      return Exit(kFailed,
                  "nobody else of the job is known: name its directory with --out=DIR, so that the "
                  "members in its targets.json can be asked");
    }
  }
  report.processes = AskAll(askables, found.credentials);
  if (!status.ok()) {
    Askable coordinator;
    coordinator.place = {COORDINATOR, 0};
    coordinator.address = address;
    coordinator.name = address.empty() ? "coordinator" : absl::StrCat("coordinator at ", address);
    AskedProcess silent = Asked(coordinator, status.status());
    silent.answer = AskedProcess::Answer::kSilent;
    silent.error = std::string(status.status().message());
    report.processes.insert(report.processes.begin(), std::move(silent));
  }
  report.now = SteadyNow();
  report.causes = FindRootCauses(report.processes, report.longer_than);
  return Print(options.format == "json" ? StuckJson(report) : StuckText(report));
}

}  // namespace

Command AddWhyStuck(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  AddCoordinatorArgument(subcommand, options->job);
  subcommand.add_option("--out", options->out,
                        "The job's directory: whom to ask where the coordinator does not answer");
  subcommand.add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  subcommand
      .add_option("--longer_than", options->longer_than,
                  "Waits that are shorter are the ordinary course of a job")
      ->capture_default_str();
  return [options] { return Run(*options); };
}

}  // namespace parley
