#include "client/local_link.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/clock/await.h"
#include "common/clock/patience.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// Deadlines of calls are seen to at least so often.
constexpr absl::Duration kLook = absl::Milliseconds(250);
// So long after a visit another one is awaited: a loop of small steps comes back sooner.
constexpr absl::Duration kVisitor = absl::Milliseconds(1);
// How long a shard may take to say who it is.
constexpr absl::Duration kHello = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::shared_ptr<LocalLink>> LocalLink::Open(const std::string& address,
                                                           const SegmentHeap* heap) {
  absl::StatusOr<std::unique_ptr<LocalSocket>> socket = LocalSocket::Connect(LocalName(address));
  if (!socket.ok()) return socket.status();
  std::shared_ptr<LocalLink> link(new LocalLink(*std::move(socket), address, heap));
  LocalRequest hello;
  hello.mutable_hello()->set_address(address);
  LocalLink* const self = link.get();
  const bool sent = link->Send(hello, SteadyNow() + kHello,
                               [self](const absl::StatusOr<LocalReply>& reply) {
                                 if (reply.ok() && reply->code() == 0) {
                                   self->ready_ = true;
                                 } else {
                                   self->Close();
                                 }
                               },
                               {});
  if (!sent) return absl::UnavailableError(absl::StrCat(address, " has no local door"));
  link->thread_ = std::thread([self] { self->Run(); });
  return link;
}

LocalLink::LocalLink(std::unique_ptr<LocalSocket> socket, std::string address,
                     const SegmentHeap* heap)
    : socket_(std::move(socket)), address_(std::move(address)), heap_(heap) {}

bool LocalLink::Send(LocalRequest& request, absl::Time deadline, OnReply on_reply,
                     const std::vector<SegmentHeap::Place>& places) {
  request.set_patience_us(PatienceUntil(deadline));
  absl::MutexLock lock(&mu_);
  if (closed_) return false;
  std::vector<int> files;
  for (const SegmentHeap::Place& place : places) {
    if (shown_.contains(place.segment) ||
        std::find(request.segments().begin(), request.segments().end(), place.segment) !=
            request.segments().end()) {
      continue;
    }
    request.add_segments(place.segment);
    files.push_back(place.memory->fd().get());
  }
  request.set_call(next_call_);
  {
    absl::MutexLock reads_lock(&reads_->mu);
    request.mutable_read()->Assign(reads_->over.begin(), reads_->over.end());
  }
  // Under the lock: the shard must have a segment before it hears of a place in it.
  if (!socket_->Send(request.SerializeAsString(), files).ok()) return false;
  {
    absl::MutexLock reads_lock(&reads_->mu);
    reads_->over.erase(reads_->over.begin(), reads_->over.begin() + request.read_size());
  }
  shown_.insert(request.segments().begin(), request.segments().end());
  calls_[next_call_++] = {deadline, std::move(on_reply)};
  return true;
}

bool LocalLink::Push(const TensorPush& push, absl::Time deadline, Done<PushReply>& done) {
  if (!ready_) return false;
  LocalRequest request;
  std::vector<SegmentHeap::Place> places;
  request.mutable_slices()->Reserve(static_cast<int>(push.slices.size()));
  for (const TensorSlice& slice : push.slices) {
    std::optional<SegmentHeap::Place> place = ShowSlice(slice, *heap_, *request.add_slices());
    if (!place.has_value()) return false;
    if (places.empty() || places.back().segment != place->segment) {
      places.push_back(*std::move(place));
    }
  }
  *request.mutable_push() = push.head;
  // Kept until it has begun, so that it can be given back.
  const auto answer = std::make_shared<Done<PushReply>>(std::move(done));
  const bool sent = Send(
      request, deadline,
      [answer](absl::StatusOr<LocalReply> reply) {
        if (!reply.ok()) return (*answer)(reply.status());
        (*answer)(std::move(*reply->mutable_push()));
      },
      places);
  if (!sent) done = std::move(*answer);
  return sent;
}

bool LocalLink::Complete(const CompleteRequest& complete, absl::Time deadline,
                         Done<CompleteReply>& done) {
  if (!ready_) return false;
  LocalRequest request;
  *request.mutable_complete() = complete;
  const auto answer = std::make_shared<Done<CompleteReply>>(std::move(done));
  const bool sent = Send(request, deadline,
                         [answer](absl::StatusOr<LocalReply> reply) {
                           if (!reply.ok()) return (*answer)(reply.status());
                           (*answer)(std::move(*reply->mutable_complete()));
                         },
                         {});
  if (!sent) done = std::move(*answer);
  return sent;
}

bool LocalLink::Pull(const PullRequest& pull, absl::Time deadline, Done<TensorPull>& done) {
  if (!ready_) return false;
  LocalRequest request;
  *request.mutable_pull() = pull;
  const auto answer = std::make_shared<Done<TensorPull>>(std::move(done));
  const bool sent = Send(request, deadline,
                         [this, answer](absl::StatusOr<LocalReply> reply) {
                           turn_.AssertHeld();  // as all answers
                           if (!reply.ok()) return (*answer)(reply.status());
                           (*answer)(Assemble(*std::move(reply)));
                         },
                         {});
  if (!sent) done = std::move(*answer);
  return sent;
}

absl::StatusOr<TensorPull> LocalLink::Assemble(LocalReply reply) {
  TensorPull pulled;
  const auto read =
      std::shared_ptr<const void>(this, [reads = reads_, call = reply.call()](const void*) {
        absl::MutexLock lock(&reads->mu);
        reads->over.push_back(call);
      });
  for (const LocalSlice& place : reply.slices()) {
    const auto segment = segments_.find(place.segment());
    absl::StatusOr<TensorSlice> slice =
        SeenSlice(place, segment == segments_.end() ? nullptr : segment->second);
    if (!slice.ok()) {
      // Asked again here, it would answer so again; elsewhere it may not.
      Close();
      return absl::UnavailableError(slice.status().message());
    }
    // Both: the mapping, and that the shard keeps what lies there.
    slice->owner =
        std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
            slice->owner, read);
    pulled.slices.push_back(*std::move(slice));
  }
  pulled.head = std::move(*reply.mutable_pull());
  return pulled;
}

absl::Time LocalLink::NextDeadline() {
  absl::Time next = SteadyNow() + kLook;
  absl::MutexLock lock(&mu_);
  for (const auto& [number, call] : calls_) next = std::min(next, call.deadline);
  return next;
}

bool LocalLink::Visit() {
  visited_ = absl::ToUnixNanos(SteadyNow());
  if (ended_ || !turn_.TryLock()) return false;
  absl::StatusOr<LocalMessage> message = socket_->Receive(absl::InfinitePast());
  const bool came = message.ok();
  const bool over = !came && !absl::IsDeadlineExceeded(message.status());
  if (came && !Handle(*std::move(message)).ok()) Close();
  turn_.Unlock();
  if (over) {
    // The end is for the thread, which does not see again what has been received here.
    Close();
    Leave();
  }
  return came;
}

void LocalLink::Leave() {
  visited_ = 0;
  absl::MutexLock lock(&watch_mu_);
  left_ = true;
}

bool LocalLink::StandBack() {
  if (absl::ToUnixNanos(SteadyNow()) - visited_ > absl::ToInt64Nanoseconds(kVisitor)) return false;
  absl::MutexLock lock(&watch_mu_);
  (void)AwaitFor(watch_mu_, absl::Condition(&left_), kVisitor);
  left_ = false;
  return true;
}

void LocalLink::Run() {
  absl::Status over;
  absl::Time deadlines_at = SteadyNow() + kLook;
  while (over.ok()) {
    if (SteadyNow() < deadlines_at && StandBack()) continue;
    socket_->Await(NextDeadline());
    if (SteadyNow() < deadlines_at && StandBack()) continue;
    deadlines_at = SteadyNow() + kLook;
    absl::MutexLock lock(&turn_);
    absl::StatusOr<LocalMessage> message = socket_->Receive(absl::InfinitePast());
    if (message.ok()) {
      over = Handle(*std::move(message));
    } else if (!absl::IsDeadlineExceeded(message.status())) {
      over = message.status();
    }
    EndCalls(absl::DeadlineExceededError(absl::StrCat(address_, " did not answer in time")),
             SteadyNow());
  }
  absl::MutexLock turn(&turn_);
  ready_ = false;
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  socket_->Shutdown();
  EndCalls(absl::UnavailableError(absl::StrCat(address_, ": ", over.message())),
           absl::InfiniteFuture());
  ended_ = true;
}

absl::Status LocalLink::Handle(LocalMessage message) {
  LocalReply reply;
  if (!reply.ParseFromString(message.bytes)) {
    return absl::InternalError("the local door sent what is no reply");
  }
  absl::Status learnt = LearnSegments(reply.segments(), std::move(message.files), segments_);
  if (!learnt.ok()) return learnt;
  OnReply on_reply;
  {
    absl::MutexLock lock(&mu_);
    const auto call = calls_.find(reply.call());
    if (call == calls_.end()) {
      return absl::InternalError("the local door answered a call that is not open");
    }
    on_reply = std::move(call->second.on_reply);
    calls_.erase(call);
  }
  if (!on_reply) {
    // Its deadline is over: nobody reads what it shows.
    absl::MutexLock lock(&reads_->mu);
    reads_->over.push_back(reply.call());
    return absl::OkStatus();
  }
  if (reply.code() != 0) {
    on_reply(absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message()));
  } else {
    on_reply(std::move(reply));
  }
  return absl::OkStatus();
}

void LocalLink::EndCalls(const absl::Status& why, absl::Time before) {
  std::vector<OnReply> over;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [number, call] : calls_) {
      if (call.on_reply == nullptr || call.deadline > before) continue;
      over.push_back(std::exchange(call.on_reply, nullptr));
      call.deadline = absl::InfiniteFuture();
    }
  }
  for (const OnReply& on_reply : over) on_reply(why);
}

}  // namespace parley
