// A program of one's own that goes wrong as it is told to: what RunOwnProgram makes of it.
#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "worker/own_program.h"

namespace parley {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Goes wrong.", "faulty_program");
  std::string fault;
  app.add_option("--fault", fault, "which: prepare, train, throw, return, hang")->required();
  OwnProgram program;
  program.prepare = [&](const JobConfig& job) {
    if (fault == "prepare") return absl::NotFoundError(job.name() + " lacks its data");
    return absl::OkStatus();
  };
  program.train = [&](const OwnTraining& training) {
    if (fault == "throw") throw std::runtime_error("an index is out of range");
    if (fault == "return") return absl::OkStatus();
    if (fault == "train") return absl::InternalError("the loop has come upon something");
    if (training.session.member_ordinal() == 1) absl::SleepFor(absl::Hours(1));
    return absl::InternalError("the other one hangs");
  };
  return RunOwnProgram(app, argc, argv, program);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
