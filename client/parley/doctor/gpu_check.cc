#include "client/parley/doctor/gpu_check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/parley/doctor/within_time.h"
#include "client/parley/units.h"
#include "common/file_descriptor.h"

namespace parley {
namespace {

constexpr char kDriver[] = "GPU driver";
constexpr char kCount[] = "GPUs";
constexpr char kVersion[] = "CUDA version";
constexpr char kPlugin[] = "CUDA libraries";
constexpr char kShared[] = "/dev/shm for NCCL";

// A driver whose GPU hangs does not answer.
constexpr absl::Duration kAnswer = absl::Seconds(60);
constexpr uint64_t kSharedMemory = uint64_t{64} << 20;
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
constexpr int kNoAnswer = -1;   // in the place of an error of CUDA's

// As cuda.h has them, which is not there where parley is built.
struct Driver {
  std::string library_error;
  int start_error = 0;
  int gpus = 0;
  int cuda_version = 0;
};

Driver AskDriver() {
  Driver driver;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const text = dlerror();
    driver.library_error = text == nullptr ? "no reason given" : text;
    return driver;
  }
  auto* const init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  auto* const count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  auto* const version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  if (init == nullptr || count == nullptr) {
    driver.library_error = "libcuda.so.1 on this machine is no NVIDIA driver";
    return driver;
  }
  if (version != nullptr && version(&driver.cuda_version) != 0) driver.cuda_version = 0;
  driver.start_error = init(0);
  if (driver.start_error == kNoDevice)
    driver.start_error = 0;
  else if (driver.start_error == 0 && count(&driver.gpus) != 0)
    driver.gpus = 0;
  return driver;
}

// "580.82.07", out of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed ...".
std::string KernelDriver(const std::string& text) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos &&
        absl::StrContains(word, '.')) {
      return word;
    }
  }
  return "";
}

// What may be behind a driver that does not start or finds nothing.
std::string Behind(const GpuFacts& facts) {
  if (!facts.closed_devices.empty()) {
    return absl::StrCat("this user may not open ", absl::StrJoin(facts.closed_devices, ", "),
                        ": add it to their group (ls -l /dev/nvidia*), or let Slurm give the job a "
                        "GPU (cluster.slurm.worker_gpus)");
  }
  if (facts.kernel_driver.empty()) {
    return "the kernel's half of the driver is not loaded (/proc/driver/nvidia/version): modprobe "
           "nvidia as root, or start the container with GPUs (--gpus all)";
  }
  if (!facts.has_devices) {
    return "there is no /dev/nvidiactl: nvidia-modprobe -c 0 -u as root, or start the container "
           "with GPUs (--gpus all)";
  }
  return "nvidia-smi says more; is CUDA_VISIBLE_DEVICES empty, or has the machine to start again "
         "after the driver was installed?";
}

constexpr char kOnTheCpu[] = ", or --set device=CPU";

Findings Look(const GpuFacts& facts, const std::function<absl::Status()>& try_all) {
  if (!facts.library_error.empty()) {
    return {Failure(kDriver,
                    absl::StrCat("this machine has no NVIDIA driver (", facts.library_error, ")"),
                    absl::StrCat("install NVIDIA's driver for CUDA ", kCudaMajor,
                                 " (its libcuda.so.1 must be where ldconfig -p finds it), or run "
                                 "this on a machine with a GPU",
                                 kOnTheCpu))};
  }
  if (facts.start_error != 0) {
    return {Failure(kDriver,
                    facts.start_error == kNoAnswer
                        ? absl::StrCat("does not answer within ", absl::FormatDuration(kAnswer))
                        : absl::StrCat("does not start: CUDA's error ", facts.start_error),
                    absl::StrCat(Behind(facts), kOnTheCpu))};
  }
  Findings findings = {Fine(kDriver, facts.kernel_driver.empty()
                                         ? std::string("starts")
                                         : absl::StrCat(facts.kernel_driver, " starts"))};
  if (facts.gpus < 1) {
    findings.push_back(
        Failure(kCount, "the driver finds none", absl::StrCat(Behind(facts), kOnTheCpu)));
    return findings;
  }
  findings.push_back(Fine(kCount, absl::StrCat(facts.gpus)));
  if (facts.cuda_version != 0 && facts.cuda_version / 1000 < kCudaMajor) {
    findings.push_back(Failure(
        kVersion,
        absl::StrFormat("the driver is for CUDA %d.%d, parley is built with %d.0",
                        facts.cuda_version / 1000, facts.cuda_version % 1000 / 10, kCudaMajor),
        absl::StrCat("install a driver for CUDA ", kCudaMajor, " (580 or later)", kOnTheCpu)));
    return findings;
  }
  findings.push_back(
      Fine(kVersion, facts.cuda_version == 0
                         ? std::string("the driver does not say for which CUDA it is")
                         : absl::StrFormat("the driver is for %d.%d", facts.cuda_version / 1000,
                                           facts.cuda_version % 1000 / 10)));
  if (!facts.has_plugin) {
    findings.push_back(Failure(kPlugin, absl::StrCat(facts.plugin, " is missing"),
                               absl::StrCat("deploy/build --cuda", kOnTheCpu)));
    return findings;
  }
  if (const absl::Status status = try_all(); !status.ok()) {
    findings.push_back(
        Failure(kPlugin, std::string(status.message()),
                absl::StrCat("deploy/bootstrap cuda, then deploy/build --cuda", kOnTheCpu)));
  } else {
    findings.push_back(Fine(kPlugin, "a worker has loaded them"));
  }
  const std::string shared = absl::StrCat(BytesText(facts.shared_memory), " free");
  findings.push_back(
      facts.shared_memory >= kSharedMemory
          ? Fine(kShared, shared)
          : Warning(kShared, shared,
                    "mount -o remount,size=1G /dev/shm as root, or start the "
                    "container with --shm-size=1g: GPUs of a machine give each other "
                    "sums there"));
  return findings;
}

}  // namespace

GpuFacts LookAtGpus(const SystemFiles& files, const std::string& plugin) {
  GpuFacts facts;
  if (auto driver = WithinTime(kAnswer, AskDriver)) {
    facts.library_error = driver->library_error;
    facts.start_error = driver->start_error;
    facts.gpus = driver->gpus;
    facts.cuda_version = driver->cuda_version;
  } else {
    facts.start_error = kNoAnswer;
  }
  facts.kernel_driver = KernelDriver(files.Text("/proc/driver/nvidia/version").value_or(""));
  for (const std::string& name : files.List("/dev")) {
    if (!absl::StartsWith(name, "nvidia")) continue;
    if (name == "nvidiactl") facts.has_devices = true;
    const std::string path = "/dev/" + name;
    const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid() && errno == EACCES) facts.closed_devices.push_back(path);
  }
  facts.plugin = plugin;
  facts.has_plugin = ::access(plugin.c_str(), R_OK) == 0;
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) == 0) {
    facts.shared_memory = uint64_t{room.f_bavail} * room.f_frsize;
  }
  return facts;
}

Findings CheckGpus(const GpuFacts& facts, Device asked,
                   const std::function<absl::Status()>& try_all) {
  if (asked != CUDA && asked != AUTO) {
    return {Fine(kCount, "not asked for: the job computes on the CPU")};
  }
  Findings findings = Look(facts, try_all);
  for (Finding& finding : findings) {
    if (asked != AUTO || finding.severity != Severity::kFailure) continue;
    finding.severity = Severity::kWarning;
    absl::StrAppend(&finding.found, "; device: AUTO runs on the CPU");
  }
  return findings;
}

}  // namespace parley
