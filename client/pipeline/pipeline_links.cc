#include "client/pipeline/pipeline_links.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr char kDeliver[] = "deliver";

absl::Status NotThere(const Member& member, const absl::Status& why) {
  return absl::UnavailableError(absl::StrCat(member.role() == WORKER ? "worker " : "stage ",
                                             member.ordinal(), " at ", member.address(),
                                             " cannot be reached: ", why.message()));
}

// Of the link, or of what the other process is. It can also say that its step is over, as can this
// one: then nobody waits for the message.
bool IsLoss(const absl::Status& status) {
  return !status.ok() && !absl::IsCancelled(status) && !absl::IsFailedPrecondition(status) &&
         !absl::IsNotFound(status);
}

}  // namespace

PipelineLinks::PipelineLinks(const Options& options, Session& session)
    : session_(session),
      liveness_(options.liveness),
      patience_(options.patience),
      inbox_([this] { Wake(); }) {}

void PipelineLinks::Wake() {
  absl::MutexLock lock(&wake_mu_);
  if (waiter_ != nullptr) {
    waiter_->Wake();
  } else {
    session_.Wake();
  }
}

void PipelineLinks::WaitThrough(PeerWaiter* waiter) {
  absl::MutexLock lock(&wake_mu_);
  waiter_ = waiter;
}

absl::StatusOr<std::unique_ptr<PipelineLinks>> PipelineLinks::Start(const Options& options,
                                                                    Session& session) {
  std::unique_ptr<PipelineLinks> links = absl::WrapUnique(new PipelineLinks(options, session));
  RemoteAgent::Options agent;
  agent.job = options.job;
  agent.listen = options.listen;
  agent.advertise = options.address;
  agent.service = options.service;
  agent.credentials = options.credentials;
  agent.observer = options.observer;
  agent.refused = options.refused;
  // Who is dead the coordinator says; whoever is slow is to be waited for.
  const absl::Duration lease = options.lease > absl::ZeroDuration()
                                   ? options.lease
                                   : 4 * options.liveness + absl::Seconds(30);
  agent.lease = lease;
  agent.patience = lease;
  agent.at_once = {kDeliver};
  const RemoteFunction deliver = [inbox = &links->inbox_,
                                  lease](const RemoteCall& call) -> absl::StatusOr<RemoteValue> {
    if (call.arguments.size() != 1) {
      return absl::InvalidArgumentError("one message is delivered at a time");
    }
    absl::StatusOr<ValuePtr> value = call.arguments[0].Fetch(SteadyNow() + lease);
    // Whoever has sent it is gone, or has given that unit up.
    if (absl::IsAborted(value.status()) || absl::IsFailedPrecondition(value.status())) {
      return value.status();
    }
    const absl::StatusOr<PipelineKey> key = value.ok() ? KeyOf(**value) : value.status();
    if (!key.ok()) {
      inbox->Fail(key.status());
      return key.status();
    }
    inbox->Put(*key, *std::move(value));
    return RemoteValue();
  };
  absl::StatusOr<std::unique_ptr<RemoteAgent>> started =
      RemoteAgent::Start(agent, {{kDeliver, deliver}});
  if (!started.ok()) return started.status();
  links->agent_ = *std::move(started);
  return links;
}

absl::Status PipelineLinks::BeginUnit() {
  const Session::Pipeline now = session_.pipeline();
  const uint64_t job_epoch = session_.epochs().job;
  if (now.composition != pipeline_.composition || job_epoch != job_epoch_) {
    pipeline_ = now;
    job_epoch_ = job_epoch;
    unit_ = 0;
    connected_ = false;
  }
  ++unit_;
  inbox_.Begin(job_epoch_, pipeline_.composition, unit_);
  {
    absl::MutexLock lock(&sent_mu_);
    ++turn_;
    sent_ = 0;
    lost_ = absl::OkStatus();
  }
  if (connected_) return absl::OkStatus();
  for (size_t part = 0; part < pipeline_.members.size(); ++part) {
    if (part == pipeline_.part) continue;
    if (absl::Status connected = Connect(pipeline_.members[part]); !connected.ok()) {
      return connected;
    }
  }
  connected_ = true;
  return absl::OkStatus();
}

absl::Status PipelineLinks::Connect(const Member& member) {
  const absl::Time began = SteadyNow();
  while (true) {
    const absl::Status connected = agent_->Connect(member.address(), SteadyNow() + liveness_ / 4);
    if (connected.ok()) return connected;
    // It may be gone, and another one come; or it has not begun to serve.
    absl::Status still = session_.AwaitPeers("connecting with its pipeline", [] { return true; });
    if (!still.ok()) return still;
    if (SteadyNow() - began >= patience_) {
      return absl::DeadlineExceededError(NotThere(member, connected).message());
    }
  }
}

PipelineKey PipelineLinks::Key(PipelineKind kind, uint32_t part, uint32_t microbatch) const {
  PipelineKey key;
  key.job_epoch = job_epoch_;
  key.composition = pipeline_.composition;
  key.unit = unit_;
  key.kind = kind;
  key.part = part;
  key.microbatch = microbatch;
  return key;
}

absl::Status PipelineLinks::ToWorker(const PipelineKey& key, std::vector<ValueTensor> tensors) {
  return Send(0, key, std::move(tensors));
}

absl::Status PipelineLinks::ToStage(uint32_t stage, const PipelineKey& key,
                                    std::vector<ValueTensor> tensors, bool on_device) {
  return Send(1 + size_t{stage}, key, std::move(tensors), on_device);
}

absl::Status PipelineLinks::Send(size_t part, const PipelineKey& key,
                                 std::vector<ValueTensor> tensors, bool on_device) {
  if (part >= pipeline_.members.size()) {
    return absl::InternalError(absl::StrCat("the pipeline has no part ", part));
  }
  ReferenceScope scope;
  scope.set_job_epoch(key.job_epoch);
  scope.set_step(key.composition);
  scope.set_attempt(static_cast<uint32_t>(key.unit));
  const RemoteReference value = agent_->Make(ToValue(key, std::move(tensors), on_device), scope);
  const Member& member = pipeline_.members[part];
  uint64_t turn = 0;
  {
    absl::MutexLock lock(&sent_mu_);
    if (!lost_.ok()) return lost_;
    turn = turn_;
    ++sent_;
  }
  const auto call = [&] {
    return agent_->Call(
        member.address(), kDeliver, {value}, scope,
        [this, turn, member](const absl::Status& status) { Answered(turn, member, status); });
  };
  auto called = call();
  // The link was lost (nobody was heard there for a lease), though its process has not gone. If
  // anything was on its way there Answered hears of it.
  if (absl::IsFailedPrecondition(called.status()) &&
      agent_->Connect(member.address(), SteadyNow() + liveness_).ok()) {
    called = call();
  }
  if (called.ok()) return absl::OkStatus();
  absl::MutexLock lock(&sent_mu_);
  --sent_;
  return NotThere(member, called.status());
}

void PipelineLinks::Answered(uint64_t turn, const Member& member, const absl::Status& status) {
  bool wake = false;
  {
    absl::MutexLock lock(&sent_mu_);
    if (turn != turn_) return;
    --sent_;
    if (IsLoss(status)) lost_.Update(NotThere(member, status));
    wake = !lost_.ok() || (awaits_sent_ && sent_ == 0);
  }
  if (wake) Wake();
}

absl::Status PipelineLinks::lost() const {
  absl::MutexLock lock(&sent_mu_);
  return lost_;
}

absl::Status PipelineLinks::AwaitPeers(const std::string& what, const std::function<bool()>& done) {
  PeerWaiter* waiter = nullptr;
  {
    absl::MutexLock lock(&wake_mu_);
    waiter = waiter_;
  }
  const auto over = [&] { return !lost().ok() || done(); };
  const absl::Status waited =
      waiter != nullptr ? waiter->AwaitPeers(what, over) : session_.AwaitPeers(what, over);
  return waited.ok() ? lost() : waited;
}

absl::StatusOr<ValuePtr> PipelineLinks::Await(const PipelineKey& key, const std::string& what) {
  const absl::Status waited = AwaitPeers(what, [&] { return inbox_.Has(key); });
  if (!waited.ok()) return waited;
  if (absl::Status error = inbox_.error(); !error.ok()) return error;
  return inbox_.Take(key);
}

absl::Status PipelineLinks::AwaitSent() {
  {
    absl::MutexLock lock(&sent_mu_);
    awaits_sent_ = true;
  }
  const absl::Status waited = AwaitPeers("waiting for its pipeline to have what it has sent", [&] {
    absl::MutexLock lock(&sent_mu_);
    return sent_ == 0;
  });
  absl::MutexLock lock(&sent_mu_);
  awaits_sent_ = false;
  return waited;
}

absl::StatusOr<Verdict> PipelineLinks::GiveUp(const absl::Status& why) {
  // Somebody may be gone, of whom the session has not heard yet: of what is Aborted it waits for
  // the coordinator's word, and where that does not come says this error.
  return session_.Abandon(absl::IsUnavailable(why) ? absl::AbortedError(why.message()) : why);
}

void PipelineLinks::EndUnit() {
  agent_->EndStep({.job_epoch = job_epoch_,
                   .step = pipeline_.composition,
                   .attempt = static_cast<uint32_t>(unit_)});
}

}  // namespace parley
