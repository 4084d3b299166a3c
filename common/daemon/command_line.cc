#include "common/daemon/command_line.h"

#include <iostream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/daemon/exit_code.h"
#include "common/daemon/version.h"

namespace parley {

absl::StatusOr<bool> ParseWords(CLI::App& app, const std::vector<const char*>& words) {
  if (app.get_version_ptr() == nullptr) {
    app.set_version_flag("--version", app.get_name() + " " + kVersion);
  }
  try {
    app.parse(static_cast<int>(words.size()), words.data());
    return true;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error, std::cout, std::cerr);
      return false;
    }
    // One line: the last one of a log is what `parley run` shows of a process that has ended.
    return absl::InvalidArgumentError(
        absl::StrCat(app.get_name(), ": ", error.what(), " (usage: --help)"));
  }
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv) {
  const absl::StatusOr<bool> goes_on = ParseWords(app, {argv, argv + argc});
  if (!goes_on.ok()) {
    std::cerr << goes_on.status().message() << "\n";
    return kWrongUsage;
  }
  return *goes_on ? std::nullopt : std::optional<int>(kFinished);
}

void AddDaemonFlags(CLI::App& app, DaemonFlags& flags, bool with_coordinator) {
  app.add_option("--job", flags.job, "The job file (textproto of JobConfig)")->required();
  if (with_coordinator) {
    app.add_option("--coordinator", flags.coordinator,
                   "HOST:PORT of the coordinator, or file:PATH of its address file")
        ->required();
    app.add_option("--credentials", flags.credentials,
                   "File of the job's credentials, where --coordinator is HOST:PORT beyond this "
                   "machine; else it is found beside the coordinator's address file");
    app.add_option_function<std::string>(
           "--join_timeout",
           [&flags](const std::string& text) {
             if (!absl::ParseDuration(text, &flags.join_timeout) ||
                 flags.join_timeout <= absl::ZeroDuration()) {
               throw CLI::ValidationError("--join_timeout",
                                          "'" + text + "' is no duration above 0, such as 60s");
             }
           },
           "How long to wait for a coordinator that is not up yet")
        ->default_str(absl::FormatDuration(flags.join_timeout));
    app.add_option("--joined_file", flags.joined_file,
                   "File to make once the process has joined the job, for who watches over it");
  }
  app.add_flag("--one_sigterm", flags.one_sigterm,
               "Ignore further SIGTERMs after the first one, where whoever sends them means no "
               "haste by that: Slurm and `parley run` do not");
  app.add_option("--listen", flags.listen, "HOST:PORT of the gRPC server; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--advertise", flags.advertise,
                 "HOST:PORT at which others reach the gRPC server, if not where it listens; port 0 "
                 "is the port that it listens on");
  app.add_option("--metrics", flags.metrics, "HOST:PORT of /metrics; port 0 takes a free one")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--log_format",
         [&flags](const std::string& text) {
           flags.log_format = text == "json" ? LogFormat::kJson : LogFormat::kText;
         },
         "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
}

}  // namespace parley
