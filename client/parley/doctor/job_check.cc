#include "client/parley/doctor/job_check.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/parley/units.h"
#include "common/tensor.h"

namespace parley {
namespace {

constexpr char kFile[] = "job file";
constexpr char kModel[] = "model and data";
constexpr char kStart[] = "start in directory";

// A line of a table has one line.
std::string OneLine(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", "; "}}); }

}  // namespace

Finding CheckJobFile(const std::string& file, const absl::Status& loaded) {
  if (loaded.ok()) return Fine(kFile, absl::StrCat(file, " is well formed and complete"));
  return Failure(kFile, OneLine(std::string(loaded.message())),
                 "correct that field; proto/job.proto says what each means, and parley job JOB "
                 "prints a job with all its defaults");
}

Finding CheckModelAndData(const DescribedJob& described) {
  if (described.own_program) {
    return Fine(kModel, "are a program's of your own, and so not looked at");
  }
  if (described.code == kFinished) {
    uint64_t bytes = 0;
    for (const TensorSpec& tensor : described.model.tensors) bytes += ByteCount(tensor);
    return Fine(kModel,
                absl::StrCat(described.model.tensors.size(), " tensors of ", BytesText(bytes), "; ",
                             described.model.training_samples, " samples for training, ",
                             described.model.test_samples, " for evaluation"));
  }
  const std::string found = OneLine(described.error);
  if (described.code == kWrongUsage) {
    return Failure(kModel, found,
                   "that file must be there, whole, and readable on this machine: mount or copy it "
                   "where the job file says (data, model), or correct the job file");
  }
  return Failure(kModel, found,
                 "a worker cannot read its model and data here: look at what it says; parley plan "
                 "JOB does the same");
}

Finding JobStartFinding(const std::string& directory, const absl::Status& start) {
  if (start.ok()) return Fine(kStart, absl::StrCat("a job can begin in ", directory));
  const std::string found = OneLine(std::string(start.message()));
  if (absl::IsAlreadyExists(start)) {
    return Failure(kStart, found,
                   "a job runs there: another --out, or --coordinator=file:DIR/coordinator.address "
                   "to look at this machine as one that joins it");
  }
  if (absl::IsFailedPrecondition(start)) {
    return Failure(kStart, found,
                   "start the coordinator of the job that has not ended again with that --out, or "
                   "take another --out");
  }
  return Failure(kStart, found,
                 "correct checkpoint.start_from in the job file, or take another --out");
}

}  // namespace parley
