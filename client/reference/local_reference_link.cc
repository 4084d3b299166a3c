#include "client/reference/local_reference_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/patience.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// Deadlines of calls are seen to at least so often.
constexpr absl::Duration kLook = absl::Milliseconds(250);
// Below this a tensor's bytes are in the message: the system's copy costs less than a block.
constexpr size_t kInlineBytes = 16 << 10;
// Sent and not read: the activations of many microbatches.
constexpr size_t kMostBlockBytes = size_t{1} << 30;
// How long the other process may take to say that it is the one that is meant.
constexpr absl::Duration kHello = absl::Seconds(10);

}  // namespace

std::string LocalReferenceName(const std::string& address) {
  return absl::StrCat("parley-references ", address);
}

absl::StatusOr<std::shared_ptr<LocalReferenceLink>> LocalReferenceLink::Open(
    const std::string& address) {
  absl::StatusOr<std::unique_ptr<LocalSocket>> socket =
      LocalSocket::Connect(LocalReferenceName(address));
  if (!socket.ok()) return socket.status();
  std::shared_ptr<LocalReferenceLink> link(new LocalReferenceLink(*std::move(socket), address));
  LocalReferenceLink* const self = link.get();
  LocalCallRequest hello;
  hello.set_hello(address);
  {
    absl::MutexLock lock(&self->mu_);
    hello.set_call(self->next_call_);
    if (!self->socket_->Send(hello.SerializeAsString()).ok()) {
      return absl::UnavailableError(absl::StrCat(address, " has no local door for references"));
    }
    self->calls_[self->next_call_++] = {SteadyNow() + kHello,
                                        [self](const absl::StatusOr<FromOwner>& reply) {
                                          if (reply.ok()) {
                                            self->ready_ = true;
                                          } else {
                                            self->Close();
                                          }
                                        }};
  }
  link->thread_ = std::thread([self] { self->Run(); });
  return link;
}

LocalReferenceLink::LocalReferenceLink(std::unique_ptr<LocalSocket> socket, std::string address)
    : socket_(std::move(socket)), address_(std::move(address)), blocks_(kMostBlockBytes) {}

bool LocalReferenceLink::Place(const std::vector<TensorSlice>& data, LocalCallRequest& request,
                               std::map<uint32_t, std::shared_ptr<MemorySegment>>& blocks) {
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return false;
    for (const TensorSlice& slice : data) {
      if (slice.bytes.size() < kInlineBytes) continue;
      const absl::StatusOr<ValueBlocks::Block> block = blocks_.Take(slice.bytes.size());
      if (!block.ok()) return false;
      LocalBlock& place = *request.add_blocks();
      place.set_data(slice.slice);
      place.set_segment(block->number);
      place.set_bytes(slice.bytes.size());
      blocks[block->number] = block->memory;
    }
  }
  int next = 0;
  for (const TensorSlice& slice : data) {
    SliceData& message = *request.mutable_made()->add_data();
    if (slice.bytes.size() < kInlineBytes) {
      CopyTo(slice, message);
    } else {
      slice.bytes.CopyTo(blocks[request.blocks(next++).segment()]->data());
    }
  }
  return true;
}

void LocalReferenceLink::GiveBack(const LocalCallRequest& request) {
  absl::MutexLock lock(&mu_);
  for (const LocalBlock& block : request.blocks()) (void)blocks_.GiveBack(block.segment());
}

bool LocalReferenceLink::Call(const OutgoingCall& call, absl::Time deadline,
                              Done<FromOwner>& done) {
  if (!ready_) return false;
  DescribedCall described = DescribeCall(call, kMostBlockBytes / 4);
  LocalCallRequest request;
  *request.mutable_made() = std::move(described.head);
  request.set_patience_us(PatienceUntil(deadline));
  std::map<uint32_t, std::shared_ptr<MemorySegment>> blocks;
  if (!Place(described.data, request, blocks)) {
    GiveBack(request);
    return false;
  }
  {
    absl::MutexLock lock(&mu_);
    std::vector<int> files;
    for (const auto& [number, memory] : blocks) {
      if (shown_.contains(number)) continue;
      request.add_segments(number);
      files.push_back(memory->fd().get());
    }
    const std::vector<uint32_t> gone = blocks_.TakeGone();
    request.mutable_gone()->Assign(gone.begin(), gone.end());
    request.set_call(next_call_);
    // Under the lock: the peer must have a segment before it hears of a block in it.
    if (!closed_ && socket_->Send(request.SerializeAsString(), files).ok()) {
      shown_.insert(request.segments().begin(), request.segments().end());
      for (const uint32_t number : gone) shown_.erase(number);
      calls_[next_call_++] = {deadline, std::move(done)};
      return true;
    }
    blocks_.PutGone(gone);
  }
  GiveBack(request);
  return false;
}

absl::Time LocalReferenceLink::NextDeadline() {
  absl::Time next = SteadyNow() + kLook;
  absl::MutexLock lock(&mu_);
  for (const auto& [number, call] : calls_) next = std::min(next, call.deadline);
  return next;
}

void LocalReferenceLink::Run() {
  absl::Status over;
  while (over.ok()) {
    const absl::StatusOr<LocalMessage> message = socket_->Receive(NextDeadline());
    if (message.ok()) {
      over = Handle(*message);
    } else if (!absl::IsDeadlineExceeded(message.status())) {
      over = message.status();
    }
    EndCalls(absl::DeadlineExceededError(absl::StrCat(address_, " did not answer in time")),
             SteadyNow());
  }
  ready_ = false;
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    blocks_.Clear();  // the link may stay for as long as this process
  }
  socket_->Shutdown();
  EndCalls(absl::UnavailableError(absl::StrCat(address_, ": ", over.message())),
           absl::InfiniteFuture());
  ended_ = true;  // last: who sees it may join this thread, also with a lock held
}

absl::Status LocalReferenceLink::Handle(const LocalMessage& message) {
  LocalCallReply reply;
  if (!reply.ParseFromString(message.bytes)) {
    return absl::InternalError("the local door for references sent what is no reply");
  }
  Done<FromOwner> done;
  {
    absl::MutexLock lock(&mu_);
    for (const uint32_t number : reply.read()) {
      if (absl::Status given = blocks_.GiveBack(number); !given.ok()) return given;
    }
    const auto call = calls_.find(reply.call());
    if (call != calls_.end()) {
      done = std::move(call->second.done);
      calls_.erase(call);
    }
  }
  if (!done) return absl::OkStatus();
  if (reply.code() != 0) {
    done(absl::Status(static_cast<absl::StatusCode>(reply.code()), reply.message()));
  } else {
    done(FromOwner(RemoteCallReply()));
  }
  return absl::OkStatus();
}

void LocalReferenceLink::EndCalls(const absl::Status& why, absl::Time before) {
  std::vector<Done<FromOwner>> over;
  {
    absl::MutexLock lock(&mu_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (it->second.deadline > before) {
        ++it;
        continue;
      }
      over.push_back(std::move(it->second.done));
      it = calls_.erase(it);
    }
  }
  for (const Done<FromOwner>& done : over) done(why);
}

}  // namespace parley
