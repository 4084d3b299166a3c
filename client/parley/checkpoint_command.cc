#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/parley/checkpoint_text.h"
#include "client/parley/command.h"
#include "common/checkpoint/export.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/verify.h"
#include "common/daemon/exit_code.h"
#include "common/file_system.h"

namespace parley {
namespace {

struct Options {
  std::string directory;
  std::string out;
};

int End(const absl::Status& status, const std::string& text) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return absl::IsInvalidArgument(status) ? kWrongUsage : kFailed;
  }
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? kFinished : kFailed;
}

int Inspect(const Options& options) {
  const auto files = PosixFileSystem();
  // Sizes, and that every element is there once; the sums are for `verify`.
  const auto reader = CheckpointReader::Open(*files, options.directory);
  if (!reader.ok()) return End(reader.status(), "");
  return End(absl::OkStatus(), CheckpointText((*reader)->folder(), (*reader)->manifest()));
}

int Verify(const Options& options) {
  const auto files = PosixFileSystem();
  const auto status = VerifyCheckpoint(*files, options.directory);
  return End(status, absl::StrCat(options.directory, ": whole\n"));
}

int Export(const Options& options) {
  const auto files = PosixFileSystem();
  const std::string out = options.out.empty() ? "." : options.out;
  const auto status = ExportCheckpoint(*files, options.directory, out);
  return End(status, absl::StrCat(out, "/model.safetensors\n", out, "/optimizer.safetensors\n"));
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
  return [chosen, help = &subcommand]() -> int {
    if (*chosen) return (*chosen)();
    std::fputs(help->help().c_str(), stderr);
    return kWrongUsage;
  };
}

}  // namespace parley
