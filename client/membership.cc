#include "client/membership.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "client/coordinator_address.h"
#include "client/coordinator_finder.h"
#include "client/join_reasons.h"
#include "client/membership_driver.h"
#include "client/retry.h"
#include "common/daemon/version.h"
#include "common/file_system.h"
#include "common/utc_text.h"

namespace parley {
namespace {

class DrivenMembership final : public Membership {
 public:
  explicit DrivenMembership(std::shared_ptr<MembershipDriver> driver) : driver_(std::move(driver)) {
    driver_->Start();
  }
  ~DrivenMembership() override { driver_->Stop(); }

  uint64_t member() const override { return driver_->joined().reply.member(); }
  uint32_t ordinal() const override { return driver_->joined().reply.ordinal(); }
  CallHeader header() const override { return driver_->header(); }
  std::shared_ptr<CoordinatorClient> coordinator() const override { return driver_->coordinator(); }
  bool hears_coordinator() const override { return driver_->hears_coordinator(); }
  void Waits(uint64_t last_decided_step, uint64_t job_epoch, const std::string& what) override {
    driver_->Waits(last_decided_step, job_epoch, what);
  }
  void AwaitsAnswer(const std::string& what) override { driver_->AwaitsAnswer(what); }
  void OnDisk(uint64_t bytes) override { driver_->OnDisk(bytes); }
  void Progress(uint64_t last_decided_step, uint64_t job_epoch) override {
    driver_->Progress(last_decided_step, job_epoch);
  }
  FirstCause Fail(const std::string& reason, bool preempted) override {
    return driver_->Fail(reason, preempted);
  }
  void Preempt(const std::string& reason, absl::Duration time) override {
    driver_->Preempt(reason, time);
  }
  std::optional<FirstCause> failure() const override { return driver_->failure(); }
  void Leave() override { driver_->Leave(); }
  void Depart() override { driver_->Depart(); }

 private:
  const std::shared_ptr<MembershipDriver> driver_;
};

// One attempt, waited for: there is nothing else to do before a process has joined.
absl::StatusOr<JoinReply> JoinOnce(Runtime& runtime, CoordinatorClient& coordinator,
                                   const JoinRequest& request, absl::Time deadline) {
  struct Answer {
    absl::Mutex mu;
    bool here ABSL_GUARDED_BY(mu) = false;
    absl::StatusOr<JoinReply> reply ABSL_GUARDED_BY(mu);
  };
  auto answer = std::make_shared<Answer>();
  coordinator.Join(request, deadline, [answer](absl::StatusOr<JoinReply> reply) {
    absl::MutexLock lock(&answer->mu);
    answer->reply = std::move(reply);
    answer->here = true;
  });
  absl::MutexLock lock(&answer->mu);
  // The implementation keeps the deadline; the rest is a guard against one that does not.
  if (!runtime.Await(answer->mu, absl::Condition(&answer->here), deadline + absl::Seconds(1))) {
    return absl::DeadlineExceededError("no answer to Join");
  }
  return std::move(answer->reply);
}

// Lets time pass.
void Sleep(Runtime& runtime, absl::Duration time) {
  absl::Mutex mu;
  const bool never = false;
  absl::MutexLock lock(&mu);
  (void)runtime.Await(mu, absl::Condition(&never), runtime.Now() + time);
}

JoinRequest MakeJoinRequest(const Membership::Options& options, uint64_t incarnation) {
  JoinRequest request;
  request.mutable_header()->set_job(options.job);
  request.mutable_header()->set_incarnation(incarnation);
  request.set_role(options.role);
  request.set_address(options.address);
  // Messages have to say in some way where this process is.
  request.set_host(options.runtime->host());
  request.set_metrics_address(options.metrics_address);
  request.set_pid(options.runtime->pid());
  request.set_job_fingerprint(options.job_fingerprint);
  request.set_version(kVersion);
  request.set_again(options.again);
  return request;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Membership>> Membership::Join(Options options, Connector& connector,
                                                             Listener listener) {
  if (!options.resolve) {
    options.resolve = [files = std::shared_ptr<FileSystem>(PosixFileSystem()),
                       coordinator = options.coordinator] {
      return ResolveCoordinator(*files, coordinator);
    };
  }
  MembershipDriver::Joined joined;
  Runtime& runtime = *options.runtime;
  joined.incarnation = runtime.DrawIncarnation();
  JoinRequest request = MakeJoinRequest(options, joined.incarnation);
  joined.pid = request.pid();
  joined.host = request.host();
  const absl::Time started = runtime.Now();
  const absl::Time deadline = started + options.join_timeout;
  BackoffPolicy policy;
  policy.first = absl::Milliseconds(50);
  Backoff backoff(policy, joined.incarnation);
  absl::Status last;
  JoinReasons reasons;
  auto finder = std::make_unique<CoordinatorFinder>(options.runtime, options.resolve);
  while (true) {
    if (options.gives_up && options.gives_up()) {
      return absl::CancelledError("this process is not to join any more");
    }
    const auto until = [&] {
      return std::min(deadline, runtime.Now() + std::max(options.liveness / 2, absl::Seconds(1)));
    };
    // The file is read again each time: what it names may be a coordinator of yesterday. Where it
    // cannot be read now, that one is better than none.
    absl::StatusOr<std::string> address = finder->Await(until());
    if (absl::IsDeadlineExceeded(address.status()) && joined.coordinator != nullptr) {
      address = joined.coordinator_address;
    }
    last = address.status();
    if (address.ok()) {
      if (*address != joined.coordinator_address) {
        joined.coordinator_address = *address;
        joined.coordinator = connector.ConnectCoordinator(*address);
      }
      absl::StatusOr<JoinReply> reply = JoinOnce(runtime, *joined.coordinator, request, until());
      if (reply.ok()) {
        joined.reply = *std::move(reply);
        break;
      }
      last = reply.status();
    }
    const RetryAction action = ActionFor(last.code());
    // It had a place, heard nothing of it (the answers were lost), and has lost it meanwhile.
    const bool lost_place = absl::IsAborted(last);
    if (lost_place) {
      joined.incarnation = runtime.DrawIncarnation();
      request.mutable_header()->set_incarnation(joined.incarnation);
    }
    const bool again = lost_place || action == RetryAction::kRetry ||
                       (action == RetryAction::kWait && options.wait_for_place);
    if (!again) return last;
    if (options.coordinator_news && reasons.IsNews(last.message(), runtime.Now())) {
      options.coordinator_news(absl::StrCat(
          "has not been taken in by ",
          joined.coordinator_address.empty() ? options.coordinator : joined.coordinator_address,
          " since ", FormatSince(started, runtime.Now()), ": ", last.message()));
    }
    const absl::Duration wait = backoff.Next();
    if (runtime.Now() + wait >= deadline) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "no coordinator at %s took us in within %.1f s: %s; check that it runs and that "
          "--coordinator names it",
          options.coordinator, absl::ToDoubleSeconds(runtime.Now() - started), last.message()));
    }
    Sleep(runtime, wait);
  }
  auto driver = std::make_shared<MembershipDriver>(
      std::move(options), connector, std::move(listener), std::move(finder), std::move(joined));
  return std::unique_ptr<Membership>(std::make_unique<DrivenMembership>(std::move(driver)));
}

}  // namespace parley
