#include "client/parley/scale_text.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

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

std::string ScaleText(const SetWorkersReply& reply, uint32_t workers,
                      const std::string& coordinator) {
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
  const std::string directory = JobDirectoryOf(coordinator);
  const std::string out = directory.empty() ? "OUT" : directory;
  absl::StrAppend(&text, "to start, unless `parley run` does it: ", missing,
                  "\n  on Slurm   deploy/slurm/submit --workers=", missing, " ",
                  Quoted("--out=" + out), "\n  elsewhere  parley-worker ",
                  Quoted(absl::StrCat("--job=", out, "/job.textproto")), " ",
                  Quoted("--coordinator=" + coordinator), "\n");
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
