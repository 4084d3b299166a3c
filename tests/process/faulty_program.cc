// A program of one's own that goes wrong as it is told to: what RunOwnProgram makes of it.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "worker/own_program.h"

namespace parley {
namespace {

// Trains one number to its end, and fails then.
absl::Status AfterTheEnd(Session& session) {
  TensorSpec spec;
  spec.set_name("w");
  spec.set_dtype(F32);
  spec.add_shape(1);
  absl::Status status = session.Register({spec}, /*training_samples=*/100, /*test_samples=*/0);
  const float zero = 0;
  if (status.ok() && session.must_initialize()) {
    const absl::Span<const std::byte> value(reinterpret_cast<const std::byte*>(&zero), sizeof zero);
    status = session.Initialize({value});
  }
  if (status.ok()) status = session.Pull();
  while (status.ok() && session.NextStep().has_value()) {
    status = session.Complete(0).status();
    if (status.ok()) status = session.Pull();
  }
  if (!status.ok()) return status;
  const absl::StatusOr<bool> finished = session.Finish({});
  if (!finished.ok()) return finished.status();
  return absl::ResourceExhaustedError("no room for what is written at the end");
}

int Main(int argc, char** argv) {
  CLI::App app("Goes wrong.", "faulty_program");
  std::string fault;
  app.add_option("--fault", fault, "which: prepare, train, throw, oddly, return, hang, late")
      ->required();
  OwnProgram program;
  program.prepare = [&](const JobConfig& job) {
    if (fault == "prepare") return absl::NotFoundError(job.name() + " lacks its data");
    return absl::OkStatus();
  };
  program.train = [&](const OwnTraining& training) {
    if (fault == "throw") throw std::runtime_error("an index is out of range");
    if (fault == "oddly") throw 1;
    if (fault == "return") return absl::OkStatus();
    if (fault == "late") return AfterTheEnd(training.session);
    if (fault == "train") return absl::InternalError("the loop has come upon something");
    if (training.session.member_ordinal() == 1) absl::SleepFor(absl::Hours(1));
    return absl::InternalError("the other one hangs");
  };
  return RunOwnProgram(app, argc, argv, program);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
