// parley doctor: whether this machine is fit for a job, and what to do where it is not.
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/grpc_connector.h"
#include "client/job_credentials.h"
#include "client/parley/command.h"
#include "client/parley/doctor/addresses_check.h"
#include "client/parley/doctor/clock_check.h"
#include "client/parley/doctor/coordinator_check.h"
#include "client/parley/doctor/credentials_check.h"
#include "client/parley/doctor/findings_text.h"
#include "client/parley/doctor/gpu_check.h"
#include "client/parley/doctor/job_check.h"
#include "client/parley/doctor/job_directory_check.h"
#include "client/parley/doctor/job_needs.h"
#include "client/parley/doctor/limits_check.h"
#include "client/parley/doctor/network_check.h"
#include "client/parley/doctor/programs_check.h"
#include "client/parley/doctor/shared_memory_check.h"
#include "client/parley/doctor/within_time.h"
#include "client/parley/start_text.h"
#include "client/parley/status_query.h"
#include "common/daemon/version.h"
#include "common/file_system.h"
#include "common/job/job_file.h"
#include "common/job/own_program.h"
#include "server/coordinator/job_start.h"

namespace parley {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(5);
constexpr absl::Duration kOwnSockets = absl::Seconds(30);
constexpr char kWorker[] = "parley-worker";
// What a worker says first where the device that its job asks for is missing.
constexpr char kNoDevice[] = "device: CUDA cannot be had: ";

// What DescribeJob says where a signal has come.
constexpr char kInterrupted[] = "interrupted by ";

struct Options {
  JobArgument job;
  std::string out;
  std::string listen = "127.0.0.1:0";
  CoordinatorArgument job_at;
  std::string format = "text";
};

// A signal is this loop's while it runs; before and after it ends this process like any other.
DescribedJob Describe(const JobArgument& argument, const DescribeOptions& options) {
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  SignalInbox signals;
  DescribedJob described = DescribeJob(argument, signals, options);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return described;
}

// One examination of this machine; on the main thread.
class Examination {
 public:
  explicit Examination(const Options& options) : options_(options) {}

  // Where it was interrupted: what to say, and the status.
  const std::optional<std::pair<ExitCode, std::string>>& interruption() const {
    return interruption_;
  }

  Findings Run() {
    LookAtJob();
    LookAtPrograms();
    DescribeModel();
    if (interruption_) return {};
    needs_ = Needs();
    LookAtCredentials();
    LookAtPlaces();
    Append(findings_, CheckClock(LookAtClock()));
    LookAtDirectory();
    const SystemFiles files;
    Append(findings_, CheckLimits(LookAtLimits(files), needs_));
    LookAtMemoryOfOthers(files);
    Append(findings_, CheckNetwork(LookAtNetwork(files), needs_));
    LookAtDevices(files);
    return std::move(findings_);
  }

 private:
  void LookAtJob() {
    if (options_.job.file.empty()) return;
    auto job = LoadJob(options_.job.file, options_.job.overrides);
    findings_.push_back(CheckJobFile(options_.job.file, job.status()));
    if (job.ok()) job_ = *std::move(job);
  }

  void LookAtPrograms() {
    std::vector<std::string> names = {"parley-coordinator", "parley-shard"};
    if (!job_ || !NeedsOwnProgram(*job_)) names.emplace_back(kWorker);
    if (job_ && job_->cluster().stages() != 0) names.emplace_back("parley-stage");
    Append(findings_, CheckPrograms(AskPrograms(names), kVersion));
    for (const Finding& finding : findings_) {
      if (finding.what == kWorker) worker_starts_ = finding.severity == Severity::kOk;
    }
    Append(findings_, CheckLibraries(LookAtLibraries()));
  }

  void DescribeModel() {
    // Whose line says already what is wrong with the worker.
    if (!job_ || (!worker_starts_ && !NeedsOwnProgram(*job_))) return;
    DescribedJob described = Describe(options_.job, {});
    NoteInterruption(described);
    findings_.push_back(CheckModelAndData(described));
    if (described.code == kFinished && !described.own_program) {
      model_ = std::move(described.model);
    }
  }

  void NoteInterruption(const DescribedJob& described) {
    if (!absl::StartsWith(described.error, kInterrupted)) return;
    interruption_ = {described.code, described.error};
  }

  JobNeeds Needs() const {
    const bool all_here = !IsForOthers(options_.listen);
    return job_ ? NeedsOf(*job_, model_ ? &*model_ : nullptr, all_here) : NeedsOfSmallJob(all_here);
  }

  // Of a job that runs, or has run in this directory.
  void LookAtCredentials() {
    const std::string place = options_.job_at.coordinator.empty()
                                  ? absl::StrCat("file:", Directory(), "/coordinator.address")
                                  : options_.job_at.coordinator;
    const auto found = CredentialsOfJob(place, options_.job_at.credentials);
    findings_.push_back(CheckCredentials(found));
    connector_ = MakeGrpcConnector(/*direct=*/false, found.ok() ? *found : nullptr);
  }

  void LookAtPlaces() {
    Append(findings_, CheckListen(options_.listen, *network_));
    if (options_.job_at.coordinator.empty()) return;
    const CoordinatorQuestion question = {
        options_.job_at.coordinator, job_ ? job_->name() : "", [this](const std::string& address) {
          return QueryStatus(*connector_, *files_, address, kAnswer);
        }};
    Append(findings_, CheckCoordinator(question, *files_, *network_));
  }

  // --out, or where the coordinator has its address file, or where parley run makes one.
  std::string Directory() const {
    std::string directory = options_.out;
    if (directory.empty()) directory = FolderOfAddressFile(options_.job_at.coordinator);
    if (directory.empty()) directory = "runs";
    std::error_code error;
    const auto absolute = std::filesystem::absolute(directory, error).lexically_normal();
    std::string text = error ? directory : absolute.string();
    if (text.size() > 1 && text.back() == '/') text.pop_back();
    return text;
  }

  void LookAtDirectory() {
    const std::string directory = Directory();
    std::string checkpoints = directory;
    if (job_) {
      checkpoints = (std::filesystem::path(directory) / job_->checkpoint().directory()).string();
    }
    DirectoryReport report = CheckJobDirectory(directory, checkpoints, needs_);
    Append(findings_, std::move(report.findings));
    if (!report.usable || !job_ || !options_.job_at.coordinator.empty()) return;
    const auto start = CheckNewRun(
        *files_, *job_, directory, {.resume = true}, [this](const std::string& address) {
          return QueryStatus(*connector_, *files_, address, kAnswer).status();
        });
    absl::Status status = start.status();
    if (start.ok() && start->from && model_) status = CheckModelStart(*start->from, *model_);
    findings_.push_back(JobStartFinding(directory, status));
  }

  void LookAtMemoryOfOthers(const SystemFiles& files) {
    const auto place = ParseHostPort(options_.listen);
    const auto facts = WithinTime(kOwnSockets, [files] { return LookAtSharedMemory(files); });
    if (facts) {
      Append(findings_, CheckSharedMemory(*facts, place.ok() ? place->host : ""));
    } else {
      findings_.push_back(Warning("shared memory", "a local connection to itself does not answer",
                                  "are all open files taken (ulimit -n)?"));
    }
  }

  void LookAtDevices(const SystemFiles& files) {
    const Device asked = job_ ? job_->device() : CPU;
    GpuFacts facts;
    if (asked == CUDA || asked == AUTO) {
      std::error_code error;
      const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
      facts = LookAtGpus(files, (self.parent_path() / "libparley_cuda.so").string());
    }
    Append(findings_, CheckGpus(facts, asked, [this] { return TryAllOfCuda(); }));
  }

  // A worker that is to compute on a GPU of this machine, or tells what it lacks.
  absl::Status TryAllOfCuda() {
    if (!worker_starts_) return absl::FailedPreconditionError("parley-worker does not start");
    JobArgument argument = options_.job;
    argument.overrides.emplace_back("device=CUDA");
    const DescribedJob described = Describe(argument, {.runs_here = true});
    NoteInterruption(described);
    // All else that may be wrong has a line of its own.
    return absl::StartsWith(described.error, kNoDevice)
               ? absl::FailedPreconditionError(described.error.substr(sizeof(kNoDevice) - 1))
               : absl::OkStatus();
  }

  const Options& options_;
  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
  const std::unique_ptr<HostNetwork> network_ = SystemNetwork();
  std::unique_ptr<Connector> connector_;   // with the credentials
  std::optional<JobConfig> job_;           // that can be read
  std::optional<ModelDescription> model_;  // that a worker could read
  bool worker_starts_ = false;
  std::optional<std::pair<ExitCode, std::string>> interruption_;
  JobNeeds needs_;
  Findings findings_;
};

int Doctor(const Options& options) {
  if (options.job.file.empty() && !options.job.overrides.empty()) {
    return Exit(kWrongUsage, "--set changes a field of a job: name the JOB, too");
  }
  Examination examination(options);
  const Findings findings = examination.Run();
  if (const auto& interruption = examination.interruption()) {
    return Exit(interruption->first, interruption->second);
  }
  const int printed =
      Print(options.format == "json" ? FindingsJson(findings) : FindingsText(findings));
  return AnyFailed(findings) ? kFailed : printed;
}

}  // namespace

Command AddDoctor(CLI::App& subcommand) {
  const auto options = std::make_shared<Options>();
  AddJobArgument(subcommand, options->job);
  subcommand.get_option("JOB")->required(false);
  subcommand.add_option("--out", options->out,
                        "The job's directory; default: that of the coordinator's address file, or "
                        "runs, where parley run makes it");
  subcommand
      .add_option("--listen", options->listen,
                  "HOST:PORT where processes on this machine will listen. Beyond this machine: the "
                  "job has others too, and this one has one process of it")
      ->capture_default_str();
  AddCoordinatorArgument(subcommand, options->job_at, /*required=*/false);
  subcommand.add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  return [options] { return Doctor(*options); };
}

}  // namespace parley
