#include "client/parley/scale_text.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/coordinator_address.h"
#include "common/security/protection.h"

namespace parley {
namespace {

// As a word of a command line, which people copy.
std::string Quoted(const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

constexpr absl::string_view kAddressFile = "/coordinator.address";

// Where its address file lies; empty if the option names none.
std::string JobDirectoryOf(absl::string_view coordinator) {
  if (!absl::ConsumePrefix(&coordinator, "file:")) return "";
  if (!absl::ConsumeSuffix(&coordinator, kAddressFile)) return "";
  return std::string(coordinator);
}

}  // namespace

WorkerStart WorkerStartOf(FileSystem& files, const std::string& coordinator,
                          const std::string& credentials) {
  WorkerStart start = {.coordinator = coordinator, .credentials = credentials};
  start.directory = JobDirectoryOf(coordinator);
  if (!start.directory.empty()) {
    const auto has = [&](const char* name) { return files.Exists(start.directory + name); };
    start.has_job_file = has("/job.textproto");
    start.may_be_on_slurm = has("/slurm/role") && !has("/slurm/single");
  }
  const auto address = ResolveCoordinator(files, coordinator);
  start.is_beyond_machine = address.ok() && !IsLoopback(*address);
  return start;
}

std::string ScaleText(const SetWorkersReply& reply, uint32_t workers, const WorkerStart& start) {
  std::string text = absl::StrCat("workers: ", workers, ", before: ", reply.before(),
                                  "; here and staying: ", reply.here(), "\n");
  if (reply.here() >= workers) {
    if (workers < reply.before()) {
      absl::StrAppend(&text,
                      "those with the highest numbers go as soon as their steps are done: `parley "
                      "status` shows who is still there\n");
    }
    return text;
  }
  const uint32_t missing = workers - reply.here();
  absl::StrAppend(&text, "to start, unless `parley run` does it: ", missing, "\n");
  if (start.may_be_on_slurm) {
    const std::string out = start.directory.empty() ? "OUT" : start.directory;
    absl::StrAppend(&text, "  on Slurm   deploy/slurm/submit --workers=", missing, " ",
                    Quoted("--out=" + out), "\n");
  }
  const std::string job_file = start.has_job_file ? start.directory + "/job.textproto" : "FILE";
  absl::StrAppend(&text, start.may_be_on_slurm ? "  elsewhere  " : "  ",
                  reply.own_program() ? "YOUR_PROGRAM" : "parley-worker", " ",
                  Quoted("--job=" + job_file), " ", Quoted("--coordinator=" + start.coordinator));
  if (!start.credentials.empty()) {
    absl::StrAppend(&text, " ", Quoted("--credentials=" + start.credentials));
  }
  if (start.is_beyond_machine) absl::StrAppend(&text, " --listen=HOST:0 --metrics=HOST:0");
  absl::StrAppend(&text, "\n");
  if (reply.own_program()) {
    absl::StrAppend(&text, "YOUR_PROGRAM: the one that trains this job; parley-worker cannot\n");
  }
  if (!start.has_job_file) {
    absl::StrAppend(&text, "FILE: the job file that the others were given\n");
  }
  if (start.is_beyond_machine) {
    absl::StrAppend(&text, "HOST: the address of the machine on which it is started\n");
  }
  return text;
}

absl::StatusOr<DrainRequest> DrainOf(const std::string& member) {
  DrainRequest request;
  const size_t dash = member.rfind('-');
  const std::string role = member.substr(0, dash);
  uint32_t ordinal = 0;
  for (const auto& [name, value] :
       {std::pair("worker", WORKER), std::pair("shard", SHARD), std::pair("stage", STAGE)}) {
    if (role == name) request.set_role(value);
  }
  if (request.role() == ROLE_UNSPECIFIED || dash == std::string::npos ||
      !absl::SimpleAtoi(member.substr(dash + 1), &ordinal)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "MEMBER: \"", member, "\" is none; `parley status` shows them, such as worker-3"));
  }
  request.set_ordinal(ordinal);
  return request;
}

}  // namespace parley
