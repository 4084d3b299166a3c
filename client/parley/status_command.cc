#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/grpc_connector.h"
#include "client/parley/command.h"
#include "client/parley/status_query.h"
#include "client/parley/status_text.h"
#include "common/file_system.h"

namespace parley {

Command AddStatus(CLI::App& subcommand) {
  struct Options {
    CoordinatorArgument job;
    std::string format = "text";
  };
  const auto options = std::make_shared<Options>();
  AddCoordinatorArgument(subcommand, options->job);
  subcommand.add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  return [options]() -> int {
    const auto files = PosixFileSystem();
    const FoundCredentials found = FindCredentials(options->job);
    if (found.exit) return *found.exit;
    const auto connector = MakeGrpcConnector(/*direct=*/false, found.credentials);
    const auto status = QueryStatus(*connector, *files, options->job.coordinator, absl::Seconds(5));
    if (!status.ok()) return End(status.status(), "");
    return Print(options->format == "json" ? StatusJson(*status) : StatusText(*status));
  };
}

}  // namespace parley
