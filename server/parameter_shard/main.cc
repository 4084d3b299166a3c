// parley-shard: one parameter shard of a job.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/grpc_connector.h"
#include "common/daemon/command_line.h"
#include "common/daemon/daemon.h"
#include "common/file_system.h"
#include "server/parameter_shard/service.h"
#include "server/parameter_shard/shard_process.h"

int main(int argc, char** argv) {
  using namespace parley;
  CLI::App app("Holds a share of a job's parameters and applies the optimizer.", "parley-shard");
  DaemonFlags flags;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;

  Daemon daemon(SHARD, flags);
  absl::Duration join = absl::ZeroDuration();
  if (!absl::ParseDuration(flags.join_timeout, &join) || join <= absl::ZeroDuration()) {
    return daemon.Exit(kWrongUsage,
                       "--join_timeout: '" + flags.join_timeout + "' is no duration such as 60s");
  }
  if (absl::Status status = daemon.LoadJob(); !status.ok()) {
    return daemon.Exit(kWrongUsage, status);
  }
  std::unique_ptr<Connector> connector = MakeGrpcConnector();
  const std::unique_ptr<FileSystem> files = PosixFileSystem();
  ShardProcess::End end;
  {
    ShardProcess process(&daemon, connector.get(), files.get());
    ShardService service(&process.shard());
    if (absl::Status status = daemon.Serve({&service}); !status.ok()) {
      return daemon.Exit(kWrongUsage, status);
    }
    end = process.Run(join);
    process.Stop();
    // No call and no answer may reach the process when it goes.
    daemon.server().Shutdown(absl::Milliseconds(500));
    connector.reset();
  }
  return daemon.Exit(end.code, end.last_line);
}
