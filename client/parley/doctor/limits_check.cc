#include "client/parley/doctor/limits_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/parley/units.h"

namespace parley {
namespace {

// Of shared memory (docs/shared_memory.md), and what is in a checkpoint's file beside tensors.
constexpr uint64_t kSegment = uint64_t{256} << 20;
constexpr uint64_t kHeaders = uint64_t{16} << 20;

std::string CountText(uint64_t count) {
  return count == ProcessLimit::kUnlimited ? "unlimited" : absl::StrCat(count);
}

std::string SizeText(uint64_t bytes) {
  return bytes == ProcessLimit::kUnlimited ? "unlimited" : BytesText(bytes);
}

// How to raise a limit that `ulimit -FLAG` sets, to `value` as that takes it. `name`: as
// limits.conf and systemd call it.
std::string RaiseText(const ProcessLimit& limit, uint64_t needed, char flag, uint64_t value,
                      const std::string& name) {
  const std::string command = absl::StrFormat("ulimit -%c %d", flag, value);
  if (limit.hard >= needed) {
    return absl::StrCat(command, " in the shell or script that starts the processes");
  }
  return absl::StrCat("the hard limit is below that, too: as root a line `* hard ", name, " ",
                      value,
                      "` in /etc/security/limits.conf and a new login (a systemd unit: Limit",
                      name == "nofile"  ? "NOFILE"
                      : name == "nproc" ? "NPROC"
                      : name == "as"    ? "AS"
                                        : "FSIZE",
                      "=); then ", command);
}

Finding CheckOpenFiles(const LimitFacts& facts, const JobNeeds& needs) {
  const std::string found =
      absl::StrCat(CountText(facts.open_files.soft), " (hard ", CountText(facts.open_files.hard),
                   "); a process of this job has up to ", needs.open_files);
  if (facts.open_files.soft >= needs.open_files) return Fine("open files", found);
  return Failure("open files", found,
                 RaiseText(facts.open_files, needs.open_files, 'n', needs.open_files, "nofile"));
}

Finding CheckThreads(const LimitFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "threads";
  const uint64_t now = facts.threads.value_or(0);
  std::string found = absl::StrCat("the job has some ", needs.threads, " here; limit ",
                                   facts.exempt ? "none (root)" : CountText(facts.processes.soft),
                                   ", the machine has ", now, " now");
  if (facts.group_threads_left) {
    absl::StrAppend(&found, "; the control group has room for ", *facts.group_threads_left);
    if (*facts.group_threads_left < needs.threads) {
      return Failure(kWhat, found,
                     "raise pids.max of the control group: a systemd unit or slice by TasksMax=, a "
                     "container by --pids-limit");
    }
  }
  if (facts.exempt || facts.processes.soft >= needs.threads + now) return Fine(kWhat, found);
  const uint64_t wanted = needs.threads + now;
  const std::string remedy = RaiseText(facts.processes, wanted, 'u', wanted, "nproc");
  // Others' threads do not count, but we do not know whose they are.
  return facts.processes.soft < needs.threads ? Failure(kWhat, found, remedy)
                                              : Warning(kWhat, found, remedy);
}

Finding CheckAddresses(const LimitFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "address space";
  const std::string found = facts.addresses.soft == ProcessLimit::kUnlimited
                                ? std::string("unlimited")
                                : absl::StrCat(SizeText(facts.addresses.soft),
                                               " for each process; one of this job "
                                               "reserves up to ",
                                               BytesText(needs.largest_process));
  if (facts.addresses.soft >= needs.largest_process) return Fine(kWhat, found);
  if (facts.addresses.hard == ProcessLimit::kUnlimited) {
    return Failure(kWhat, found,
                   "ulimit -v unlimited in the shell or script that starts the processes: parley "
                   "reserves addresses that it never fills; memory is limited by control groups");
  }
  return Failure(kWhat, found,
                 RaiseText(facts.addresses, needs.largest_process, 'v',
                           (needs.largest_process + 1023) >> 10, "as"));
}

// Shared memory is a file, too; whoever makes one beyond the limit is ended by SIGXFSZ.
Finding CheckFileSize(const LimitFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "file size";
  const uint64_t needed = std::max(needs.largest_file, kSegment) + kHeaders;
  const std::string found =
      facts.file_size.soft == ProcessLimit::kUnlimited
          ? std::string("unlimited")
          : absl::StrCat(SizeText(facts.file_size.soft), "; checkpoints and shared memory need ",
                         BytesText(needed));
  if (facts.file_size.soft >= needed) return Fine(kWhat, found);
  return Failure(kWhat, found,
                 RaiseText(facts.file_size, needed, 'f', (needed + 1023) >> 10, "fsize"));
}

std::string WhereMemoryIsMissing(const JobNeeds& needs) {
  return needs.all_here
             ? "put processes on other machines, or fewer of them: --set cluster.workers=N (parley "
               "plan says what each needs)"
             : "a machine with more memory, or more shards, of which each has less: --set "
               "cluster.shards=N (parley plan says what each needs)";
}

Finding CheckMemory(const LimitFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "memory";
  const std::string asks =
      absl::StrCat(needs.all_here ? "the job needs " : "its largest process needs ",
                   BytesText(needs.memory), " and activations");
  if (facts.group_memory_left && *facts.group_memory_left < needs.memory) {
    return Failure(
        kWhat,
        absl::StrCat(BytesText(*facts.group_memory_left), " left of ",
                     BytesText(facts.group_memory_limit.value_or(0)), " of the control group ",
                     facts.group, "; ", asks),
        absl::StrCat("raise its limit: a systemd unit by MemoryMax=, a container by --memory, a "
                     "Slurm job by cluster.slurm.memory in the job file; or ",
                     WhereMemoryIsMissing(needs)));
  }
  if (!facts.memory_available || !facts.memory_in_all) {
    return Warning(kWhat, absl::StrCat("/proc/meminfo does not say what there is; ", asks),
                   "look yourself: free -h");
  }
  const std::string found = absl::StrCat(BytesText(*facts.memory_available), " available of ",
                                         BytesText(*facts.memory_in_all), "; ", asks);
  if (*facts.memory_in_all < needs.memory) {
    return Failure(kWhat, found, WhereMemoryIsMissing(needs));
  }
  if (*facts.memory_available < needs.memory) {
    return Failure(
        kWhat, found,
        absl::StrCat("others have the rest (ps aux --sort=-rss shows who): end them, or ",
                     WhereMemoryIsMissing(needs)));
  }
  return Fine(kWhat, found);
}

Finding CheckCores(const LimitFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "cores";
  double usable = static_cast<double>(facts.cores);
  if (facts.group_cores) usable = std::min(usable, *facts.group_cores);
  std::string found = absl::StrFormat("%g usable", usable);
  if (usable < static_cast<double>(facts.cores)) {
    absl::StrAppend(&found, " of ", facts.cores, ", by the control group's quota");
  }
  absl::StrAppend(&found, "; ", needs.computing, needs.computing == 1 ? " process" : " processes",
                  " compute here, with ",
                  needs.compute_threads == 0 ? "a thread for each core"
                                             : absl::StrCat(needs.compute_threads, " threads"));
  // A thread for each core: counted without the quota.
  const double wanted = static_cast<double>(
      std::max(needs.computing, needs.compute_threads == 0 ? facts.cores : needs.compute_threads));
  if (wanted <= usable) return Fine(kWhat, found);
  return Warning(kWhat, found,
                 "threads that share a core wait for each other: --set threads=N, or fewer workers "
                 "on this machine, or more cores (Slurm: cluster.slurm.worker_cpus)");
}

Finding CheckMappings(const LimitFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "memory maps";
  if (!facts.mappings) return Fine(kWhat, "the kernel does not say how many there may be");
  const std::string found = absl::StrCat(
      *facts.mappings, " for each process; one of this job has up to ", needs.mappings);
  if (*facts.mappings >= needs.mappings) return Fine(kWhat, found);
  return Failure(kWhat, found,
                 absl::StrCat("sysctl -w vm.max_map_count=", 2 * needs.mappings,
                              " as root, and the same line in a file of /etc/sysctl.d"));
}

Finding CheckCoreFile(const LimitFacts& facts) {
  return Fine("core files", facts.core_file.soft == 0
                                ? std::string("none are written (ulimit -c unlimited: for a bug "
                                              "report)")
                                : absl::StrCat("up to ", SizeText(facts.core_file.soft)));
}

}  // namespace

Findings CheckLimits(const LimitFacts& facts, const JobNeeds& needs) {
  return {CheckOpenFiles(facts, needs), CheckThreads(facts, needs),  CheckAddresses(facts, needs),
          CheckFileSize(facts, needs),  CheckMappings(facts, needs), CheckMemory(facts, needs),
          CheckCores(facts, needs),     CheckCoreFile(facts)};
}

}  // namespace parley
