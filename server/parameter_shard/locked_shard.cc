#include "server/parameter_shard/locked_shard.h"

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// What, if it changes, is news.
auto Mark(const Shard& shard) {
  // Initial values of many GiB may take longer than anybody waits for a shard that is not ready.
  return std::make_tuple(shard.version(), shard.attempt(), shard.counts().updates,
                         shard.counts().initialized);
}

// The same, and it is urgent.
auto UrgentMark(const Shard& shard) {
  return std::make_tuple(shard.ready(), shard.error().has_value(), shard.routing());
}

uint64_t StepsDecided(const Shard& shard) {
  return shard.counts().verdicts_apply + shard.counts().verdicts_skip;
}

}  // namespace

absl::Status LockedShard::NotJoined() {
  return absl::UnavailableError("this shard has not joined its job yet");
}

void LockedShard::Start(uint32_t ordinal) {
  absl::MutexLock lock(&mu_);
  if (shard_ == nullptr) shard_ = std::make_unique<Shard>(job_, ordinal, resources_);
}

LockedShard::~LockedShard() {
  absl::MutexLock lock(&mu_, absl::Condition(this, &LockedShard::IsIdle));
}

template <class Call>
void LockedShard::With(Call call, When when) {
  bool news = false;
  bool urgent = false;
  bool decided = false;
  bool copied = false;
  absl::Duration spent;
  std::vector<std::shared_ptr<AheadUpdate>> ahead;
  {
    Replies replies;  // run first of all: workers wait for them
    std::shared_ptr<StepWork> work;
    {
      absl::MutexLock lock(&mu_);
      if (when == When::kIdle) mu_.Await(absl::Condition(this, &LockedShard::IsIdle));
      if (shard_ == nullptr) {
        call(nullptr, replies);
      } else {
        const auto before = Mark(*shard_);
        const auto urgent_before = UrgentMark(*shard_);
        const uint64_t decided_before = StepsDecided(*shard_);
        const uint64_t copied_before = shard_->counts().copied_bytes;
        const absl::Time begin = SteadyNow();
        call(shard_.get(), replies);
        spent = SteadyNow() - begin;
        decided = decided_before != StepsDecided(*shard_);
        copied = copied_before != shard_->counts().copied_bytes;
        urgent = urgent_before != UrgentMark(*shard_) || shard_->has_requests();
        news = urgent || before != Mark(*shard_) || shard_->has_outgoing();
        work = shard_->TakeWork();
        works_ = works_ || work != nullptr;
        ahead = shard_->TakeAhead();
      }
    }
    if (work != nullptr) {
      decided = false;  // not yet
      resources_.later([this, work] { Work(*work); });
    }
  }
  ComputeAhead(std::move(ahead));
  if (decided && listener_.on_phase) {
    listener_.on_phase(copied ? Phase::kApplyCopying : Phase::kApply, spent);
  }
  if (news && listener_.on_news) listener_.on_news(urgent);
}

void LockedShard::ComputeAhead(std::vector<std::shared_ptr<AheadUpdate>> updates) {
  for (std::shared_ptr<AheadUpdate>& update : updates) {
    resources_.ahead([update = std::move(update), spent = ahead_spent_] {
      const absl::Time begin = SteadyNow();
      update->Run();
      *spent += absl::ToInt64Nanoseconds(SteadyNow() - begin);
    });
  }
}

void LockedShard::Work(StepWork& work) {
  const absl::Time begin = SteadyNow();
  uint64_t copied = 0;
  bool failed = false;
  RunInParallel(resources_.parallel, work.pieces(), [&](size_t piece) {
    const absl::Status status = work.Run(piece);
    std::vector<std::shared_ptr<AheadUpdate>> ahead;
    {
      Replies replies;
      absl::MutexLock lock(&mu_);
      const uint64_t before = shard_->counts().copied_bytes;
      shard_->OnUpdated(piece, status, replies);
      copied += shard_->counts().copied_bytes - before;
      failed = failed || shard_->error().has_value();
      ahead = shard_->TakeAhead();
    }
    ComputeAhead(std::move(ahead));
  });
  if (listener_.on_phase) {
    listener_.on_phase(copied > 0 ? Phase::kApplyCopying : Phase::kApply, SteadyNow() - begin);
  }
  if (listener_.on_news) listener_.on_news(failed);
  absl::MutexLock lock(&mu_);
  works_ = false;  // from here on it may be gone
}

template <class Reply, class Call>
void LockedShard::Answer(Done<Reply> done, Call call, When when) {
  With(
      [&](Shard* shard, Replies& replies) {
        if (shard == nullptr) return replies.Add<Reply>(std::move(done), NotJoined());
        call(*shard, replies, std::move(done));
      },
      when);
}

void LockedShard::Initialize(const InitializeRequest& request, CallTime time,
                             Done<InitializeReply> done) {
  Answer<InitializeReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    replies.Add<InitializeReply>(std::move(answer), shard.Initialize(request, time.now, replies));
  });
}

void LockedShard::Push(const PushRequest& request, absl::Span<const TensorSlice> slices, CallTime,
                       Done<PushReply> done) {
  absl::Duration spent;
  Answer<PushReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    const absl::Time begin = SteadyNow();
    absl::StatusOr<PushReply> reply = shard.Push(request, slices);
    spent = SteadyNow() - begin;
    replies.Add<PushReply>(std::move(answer), std::move(reply));
  });
  if (listener_.on_phase) listener_.on_phase(Phase::kReduce, spent);
}

void LockedShard::Complete(const CompleteRequest& request, CallTime time,
                           Done<CompleteReply> done) {
  Answer<CompleteReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    shard.Complete(request, time, replies, std::move(answer));
  });
}

void LockedShard::Enter(const EnterRequest& request, CallTime time, Done<EnterReply> done) {
  Answer<EnterReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    shard.Enter(request, time, replies, std::move(answer));
  });
}

void LockedShard::Close(const CloseRequest& request, CallTime, Done<CloseReply> done) {
  Answer<CloseReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    replies.Add<CloseReply>(std::move(answer), shard.Close(request));
  });
}

void LockedShard::Decide(const DecideRequest& request, CallTime time, Done<DecideReply> done) {
  Answer<DecideReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    replies.Add<DecideReply>(std::move(answer), shard.Decide(request, time.now, replies));
  });
}

void LockedShard::Advance(const AdvanceRequest& request, CallTime time, Done<AdvanceReply> done) {
  Answer<AdvanceReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    replies.Add<AdvanceReply>(std::move(answer), shard.Advance(request, time.now, replies));
  });
}

void LockedShard::Pull(const PullRequest& request, CallTime time, Done<PulledVersion> done) {
  Answer<PulledVersion>(
      std::move(done),
      [&](Shard& shard, Replies& replies, auto answer) {
        shard.Pull(request, time, replies, std::move(answer));
      },
      When::kAlways);
}

void LockedShard::WhyFailed(const WhyFailedRequest& request, CallTime time,
                            Done<WhyFailedReply> done) {
  Answer<WhyFailedReply>(std::move(done), [&](Shard& shard, Replies& replies, auto answer) {
    shard.WhyFailed(request, time, replies, std::move(answer));
  });
}

absl::Status LockedShard::SetView(const ClusterView& view, absl::Time now) {
  absl::Status status = NotJoined();
  With([&](Shard* shard, Replies& replies) {
    if (shard != nullptr) status = shard->SetView(view, now, replies);
  });
  return status;
}

absl::Status LockedShard::StartSlice(uint32_t slice, const SliceStart& start, absl::Time now) {
  absl::Status status = NotJoined();
  With([&](Shard* shard, Replies& replies) {
    if (shard != nullptr) status = shard->StartSlice(slice, start, now, replies);
  });
  return status;
}

void LockedShard::FollowCheckpoints(uint64_t asked, uint64_t ended, absl::Time now) {
  With([&](Shard* shard, Replies& replies) {
    if (shard != nullptr) shard->FollowCheckpoints(asked, ended, now, replies);
  });
}

void LockedShard::Fail(const FirstCause& cause) {
  With([&](Shard* shard, Replies& replies) {
    if (shard != nullptr) shard->Fail(cause, replies);
  });
}

void LockedShard::Stop() {
  With([&](Shard* shard, Replies& replies) {
    if (shard != nullptr) shard->Stop(replies);
  });
}

void LockedShard::Tick(absl::Time now) {
  With([&](Shard* shard, Replies& replies) {
    if (shard != nullptr) shard->Tick(now, replies);
  });
}

void LockedShard::OnCloseReply(uint32_t shard, const CloseRequest& request, const CloseReply& reply,
                               absl::Time now) {
  With([&](Shard* core, Replies& replies) {
    if (core != nullptr) core->OnCloseReply(shard, request, reply, now, replies);
  });
}

void LockedShard::OnAdvanceReply(uint32_t shard, const AdvanceRequest& request, absl::Time now) {
  With([&](Shard* core, Replies& replies) {
    if (core != nullptr) core->OnAdvanceReply(shard, request, now, replies);
  });
}

absl::StatusOr<std::vector<SliceSnapshot>> LockedShard::Snapshot(uint64_t version) {
  absl::MutexLock lock(&mu_, absl::Condition(this, &LockedShard::IsIdle));
  if (shard_ == nullptr) return NotJoined();
  return shard_->Snapshot(version);
}

void LockedShard::TellWaits(absl::Time now, WaitsReply& reply) {
  // Not for the end of a step, which may take long: threads of gRPC ask, and heartbeats need them.
  absl::MutexLock lock(&mu_);
  if (shard_ == nullptr) return;
  reply.set_step(shard_->version());
  if (works_) {
    // What is changed meanwhile, nobody may look at; and there is nothing else that it waits for.
    Wait& wait = *reply.add_waits();
    wait.set_what(absl::StrCat("carrying out step ", shard_->version()));
    wait.set_step(shard_->version());
    return;
  }
  for (Wait& wait : shard_->Waits(now)) *reply.add_waits() = std::move(wait);
}

LockedShard::News LockedShard::TakeNews() {
  News news;
  absl::MutexLock lock(&mu_);
  if (shard_ == nullptr) return news;
  news.outbox = shard_->TakeOutbox();
  news.verdicts = shard_->TakeVerdicts();
  news.progress = shard_->Progress();
  news.routing = shard_->shared_routing();
  news.ready = shard_->ready();
  news.version = shard_->last_decided();
  news.error = shard_->error().value_or("");
  news.counts = shard_->counts();
  news.ahead_spent = absl::Nanoseconds(ahead_spent_->load());
  news.reservation = shard_->TakeReservation();
  return news;
}

}  // namespace parley
