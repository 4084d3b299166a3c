#include "client/parley/final_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/parley/progress.h"
#include "client/parley/units.h"

namespace parley {
namespace {

void AddRow(std::string& table, const std::string& name, const std::string& text) {
  absl::StrAppendFormat(&table, "%-16s %s\n", name, text);
}

}  // namespace

std::string FinalTable(const GetStatusReply& status, uint32_t workers, bool own_program,
                       const RunPlaces& places) {
  std::string table = absl::StrCat("\njob ", status.job(), "\n");
  const char* name = "evaluation";
  for (const Evaluation& evaluation : status.evaluations()) {
    AddRow(table, name, EvaluationLine(evaluation));
    name = "";
  }
  if (status.evaluations().empty()) {
    // One that has a test set may still evaluate nothing.
    AddRow(table, name,
           own_program ? "none: the program has reported none" : "none: the job has no test set");
  }
  AddRow(table, "steps",
         absl::StrCat(status.step(),
                      status.skipped_steps() == 0
                          ? ""
                          : absl::StrCat(", of which skipped ", status.skipped_steps())));
  AddRow(table, "last loss", absl::StrFormat("%.4f", status.loss()));
  const double seconds = status.seconds_training();
  AddRow(table, "training",
         absl::StrFormat("%d samples in %.1f s: %.0f samples/s", status.samples(), seconds,
                         seconds > 0 ? static_cast<double>(status.samples()) / seconds : 0.0));
  if (!status.phase_seconds().empty()) {
    std::string phases;
    for (const PhaseSeconds& phase : status.phase_seconds()) {
      absl::StrAppendFormat(&phases, "%s%s %.1f", phases.empty() ? "" : "  ", phase.phase(),
                            phase.seconds() / std::max<uint32_t>(workers, 1));
    }
    AddRow(table, "worker's seconds", phases);
  }
  AddRow(table, "checkpoint", places.checkpoint.empty() ? "none was asked for" : places.checkpoint);
  AddRow(table, "metrics targets", places.targets);
  AddRow(table, "logs", places.logs);
  AddRow(table, "job file", places.job);
  return table;
}

}  // namespace parley
