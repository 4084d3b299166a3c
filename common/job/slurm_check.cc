#include "common/job/slurm_check.h"

#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr uint32_t kMostOfANode = 4096;       // cores, GPUs
constexpr uint32_t kMostWarning = 7 * 86400;  // seconds

// They become words of a command line, which people read and edit.
bool IsWord(std::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isgraph(c)) return false;
  }
  return true;
}

}  // namespace

void CheckSlurm(FieldCheck& check) {
  const Slurm& slurm = check.job().cluster().slurm();
  const auto word = [&](const std::string& value, std::string_view field) {
    check.Require(IsWord(value) && !absl::StartsWith(value, "-"), field,
                  absl::StrCat("must be as sbatch takes it, without spaces, not '", value, "'"));
  };
  word(slurm.partition(), "cluster.slurm.partition");
  word(slurm.account(), "cluster.slurm.account");
  word(slurm.qos(), "cluster.slurm.qos");
  word(slurm.time_limit(), "cluster.slurm.time_limit");
  word(slurm.constraint(), "cluster.slurm.constraint");
  word(slurm.memory(), "cluster.slurm.memory");
  if (slurm.has_worker_cpus()) {
    check.Between(1, slurm.worker_cpus(), kMostOfANode, "cluster.slurm.worker_cpus");
  }
  if (slurm.has_shard_cpus()) {
    check.Between(1, slurm.shard_cpus(), kMostOfANode, "cluster.slurm.shard_cpus");
  }
  check.Between(0, slurm.worker_gpus(), kMostOfANode, "cluster.slurm.worker_gpus");
  check.Between(0, slurm.warning_seconds(), kMostWarning, "cluster.slurm.warning_seconds");
  for (int i = 0; i < slurm.options_size(); ++i) {
    check.Require(
        IsWord(slurm.options(i)) && absl::StartsWith(slurm.options(i), "--"),
        absl::StrCat("cluster.slurm.options[", i, "]"),
        absl::StrCat("must be one of sbatch's long options, such as --exclude=node7, not '",
                     slurm.options(i), "'"));
  }
}

}  // namespace parley
