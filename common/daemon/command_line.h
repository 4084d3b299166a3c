#ifndef PARLEY_COMMON_DAEMON_COMMAND_LINE_H_
#define PARLEY_COMMON_DAEMON_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log.h"

namespace parley {

// The flags that every daemon takes (docs/operating.md).
struct DaemonFlags {
  std::string job;          // path of the job file
  std::string coordinator;  // HOST:PORT or file:PATH; not for the coordinator itself
  // File of the job's credentials (common/security). Empty: beside the coordinator's address file.
  std::string credentials;
  std::string listen = "127.0.0.1:0";  // of the gRPC server
  // Where others reach that server, if not at `listen`: behind a proxy or NAT, or where it listens
  // on all addresses. Port 0: the port that it listens on. Empty: as it listens.
  std::string advertise;
  std::string metrics = "127.0.0.1:0";  // of /metrics
  LogFormat log_format = LogFormat::kText;
  // For a coordinator that is not up yet; not for the coordinator itself.
  absl::Duration join_timeout = absl::Seconds(60);
  bool one_sigterm = false;  // further SIGTERMs say nothing new (Daemon::OnSignal)
  std::string joined_file;   // made when the process has joined the job; empty: none
};

// Parses words, of which the first is the program's, into whatever flags `app` has, with --help and
// --version. False: one of these was given, and answered on stdout. InvalidArgument: wrong usage.
absl::StatusOr<bool> ParseWords(CLI::App& app, const std::vector<const char*>& words);

// Parses argv into whatever flags `app` has, with --help and --version. A value when the program is
// to end at once: 0 after --help or --version (printed on stdout), 2 after wrong usage (explained
// on stderr).
std::optional<int> ParseCommandLine(CLI::App& app, int argc, const char* const* argv);

// Adds the daemon's flags to `app`; `flags` must outlive it. with_coordinator: whether
// --coordinator is one of them (and required).
void AddDaemonFlags(CLI::App& app, DaemonFlags& flags, bool with_coordinator);

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_COMMAND_LINE_H_
