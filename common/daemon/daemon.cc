#include "common/daemon/daemon.h"

#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock/steady_now.h"
#include "common/daemon/advertised.h"
#include "common/daemon/daemon_credentials.h"
#include "common/daemon/version.h"
#include "common/describe_member.h"
#include "common/job/job_file.h"
#include "common/rpc/refusals.h"
#include "common/security/credential_file.h"

namespace parley {
namespace {

// By less the times of the log are not wrong.
constexpr absl::Duration kClockIsSet = absl::Seconds(1);

// Between two lines of the log on strangers.
constexpr absl::Duration kRefusedPause = absl::Seconds(10);

// By default a block as large as a message of tensors goes back to the system when it is freed, and
// faults in again, page by page, for the next message.
void KeepFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that there is
  ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

// Debian builds Abseil with the check of the order of locks, which an optimised program does
// without.
void TrustLockOrder() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

}  // namespace

std::string MemberName(Role role, uint32_t ordinal) {
  if (role == COORDINATOR) return RoleWord(role);
  return absl::StrCat(RoleWord(role), "-", ordinal);
}

Daemon::Daemon(Role role, DaemonFlags flags)
    : role_(role),
      flags_(std::move(flags)),
      log_(flags_.log_format, RoleWord(role)),
      clock_is_set_(ClockWatch::OfProcess(),
                    [this](absl::Duration by) {
                      if (absl::AbsDuration(by) < kClockIsSet) return;
                      log_.Warning(
                          "this machine's clock was set; only the times of these lines go by it",
                          {{"by", absl::FormatDuration(
                                      absl::Seconds(std::round(absl::ToDoubleSeconds(by))))}});
                    }),
      signals_([this](int signal) { HandleSignal(signal); }) {
  KeepFreedMemory();
  TrustLockOrder();
}

absl::Status Daemon::LoadJob() {
  auto job = parley::LoadJob(flags_.job, {});
  if (!job.ok()) return job.status();
  job_ = *std::move(job);
  metrics_.SetIdentity(job_.name(), RoleWord(role_), role_ == COORDINATOR ? RoleWord(role_) : "");
  metrics_.Gauge("parley_build_info", "Always 1; what was built.", {{"version", kVersion}}).Set(1);
  if (role_ == COORDINATOR) return absl::OkStatus();
  auto credentials = DaemonCredentials(job_.tls(), flags_);
  if (!credentials.ok()) return credentials.status();
  credentials_ = *std::move(credentials);
  return absl::OkStatus();
}

absl::Status Daemon::TakeCredentials(const std::string& job_directory) {
  DaemonFlags flags = flags_;
  flags.credentials = absl::StrCat(job_directory, "/", kCredentialFile);
  auto credentials = DaemonCredentials(job_.tls(), flags);
  if (!credentials.ok()) return credentials.status();
  credentials_ = *std::move(credentials);
  return absl::OkStatus();
}

prometheus::Counter& Daemon::RefusedCounter(absl::string_view why) {
  return metrics_.Counter("parley_refused_total",
                          "Connections and calls of strangers that were refused.",
                          {{"why", std::string(why)}});
}

void Daemon::Refused(absl::string_view why, const std::string& peer) {
  RefusedCounter(why).Increment();
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = SteadyNow();
    if (now < refused_at_ + kRefusedPause) return;
    refused_at_ = now;
  }
  log_.Warning("a stranger was refused; parley_refused_total counts all of them",
               {{"why", std::string(why)}, {"from", peer.empty() ? "unknown" : peer}});
}

absl::Status Daemon::Serve(const std::vector<grpc::Service*>& services) {
  who_.set_job(job_.name());
  who_.set_role(role_);
  who_.set_joined(role_ == COORDINATOR);
  who_.set_pid(getpid());
  waits_.SetWho(who_);
  std::vector<grpc::Service*> all = services;
  all.push_back(&waits_);
  auto server = RpcServer::Start(flags_.listen, all, rpc_observer(), {credentials_, refused()});
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  // Each is there from the beginning, so that the first stranger is seen as a rise.
  for (const absl::string_view why : kWhyRefused) RefusedCounter(why);
  auto address = AdvertisedAddress(flags_.advertise, server_->address());
  if (!address.ok()) return address.status();
  address_ = *std::move(address);
  if (auto status = metrics_.Serve(flags_.metrics); !status.ok()) return status;
  if (credentials_ != nullptr && !credentials_->tls()) {
    log_.Warning("tls: OFF: whoever can read the network can read and change what is sent", {});
  }
  log_.Info("serving", {{"address", server_->address()},
                        {"metrics", metrics_.address()},
                        {"connections", credentials_ == nullptr ? "open"
                                        : credentials_->tls()   ? "tls"
                                                                : "token"},
                        {"pid", absl::StrCat(getpid())},
                        {"version", kVersion}});
  return absl::OkStatus();
}

void Daemon::Joined(uint32_t ordinal) {
  log_.SetWho(MemberName(role_, ordinal));
  metrics_.SetIdentity(job_.name(), RoleWord(role_), MemberName(role_, ordinal));
  who_.set_joined(true);
  who_.set_ordinal(ordinal);
  waits_.SetWho(who_);
  if (!flags_.joined_file.empty() && !std::ofstream(flags_.joined_file)) {
    log_.Warning("the --joined_file cannot be made", {{"file", flags_.joined_file}});
  }
}

void Daemon::OnSignal(std::function<void(int)> on_signal) {
  int pending = 0;
  std::function<void(int)> call;
  {
    absl::MutexLock lock(&mu_);
    on_signal_ = std::move(on_signal);
    pending = std::exchange(pending_signal_, 0);
    call = on_signal_;
  }
  if (pending != 0 && call) call(pending);
}

void Daemon::HandleSignal(int signal) {
  std::function<void(int)> call;
  {
    absl::MutexLock lock(&mu_);
    const bool again = signal == SIGTERM && std::exchange(sigterm_seen_, true);
    if (again && flags_.one_sigterm) return;
    // Whoever asks twice does not want to wait for the grace time.
    const bool counts = signal == SIGINT || (signal == SIGTERM && !flags_.one_sigterm);
    if (counts && ++signals_seen_ > 1) _exit(kPreempted);
    call = on_signal_;
    if (!call) pending_signal_ = signal;
  }
  if (call) call(signal);
}

int Daemon::Exit(ExitCode code, const std::string& last_line) {
  // Whether anybody can read it or not: this process goes.
  if (code != kFinished) (void)log_.Last(last_line);
  return code;
}

}  // namespace parley
