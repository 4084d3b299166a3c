#include "server/parameter_shard/local_guest.h"

#include <optional>
#include <utility>

#include "common/clock/patience.h"
#include "common/clock/steady_now.h"
#include "server/parameter_shard/parked_time.h"

namespace parley {
namespace {

// Answers to pulls that a peer may be reading: more than a session has open. A peer that never says
// that it has read holds no more memory than that.
constexpr size_t kMostHeld = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<LocalDoor>> LocalGuest::OpenDoor(Options options) {
  const std::string name = LocalName(options.address);
  return LocalDoor::Open(name, [options = std::move(options)](std::unique_ptr<LocalSocket> socket) {
    return std::make_shared<LocalGuest>(options, std::move(socket));
  });
}

void LocalGuest::Run() {
  absl::Status over;
  while (over.ok()) {
    absl::StatusOr<LocalMessage> message = socket_->Receive(absl::InfiniteFuture());
    over = message.ok() ? Handle(*std::move(message)) : message.status();
  }
  Close();
  // The peer's memory goes with it, but for what an open step still reads.
  segments_.clear();
}

void LocalGuest::Close() {
  socket_->Shutdown();
  absl::MutexLock lock(&mu_);
  closed_ = true;
  held_.clear();
}

absl::Status LocalGuest::Handle(LocalMessage message) {
  LocalRequest request;
  if (!request.ParseFromString(message.bytes)) {
    return absl::InvalidArgumentError("not a LocalRequest");
  }
  absl::Status learnt = LearnSegments(request.segments(), std::move(message.files), segments_);
  if (!learnt.ok()) return learnt;
  {
    absl::MutexLock lock(&mu_);
    for (const uint64_t call : request.read()) held_.erase(call);
  }
  if (!welcome_) return Greet(request);
  const absl::Time now = SteadyNow();
  const absl::Duration patience = PatienceOf(request.patience_us());
  switch (request.what_case()) {
    case LocalRequest::kPush:
      return Push(request, {now, now + patience});
    case LocalRequest::kComplete:
      Complete(request, {now, now + Parked(patience)});
      return absl::OkStatus();
    case LocalRequest::kPull:
      Pull(request, {now, now + Parked(patience)});
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("a LocalRequest without a call");
  }
}

absl::Status LocalGuest::Greet(const LocalRequest& request) {
  if (!request.has_hello()) return absl::InvalidArgumentError("no hello");
  if (request.hello().address() != options_.address) {
    return absl::InvalidArgumentError("another shard is meant");
  }
  welcome_ = true;
  LocalReply reply;
  reply.set_call(request.call());
  return Send(reply, {});
}

absl::Status LocalGuest::Push(const LocalRequest& request, CallTime time) {
  std::vector<TensorSlice> slices;
  slices.reserve(static_cast<size_t>(request.slices_size()));
  for (const LocalSlice& shown : request.slices()) {
    const auto segment = segments_.find(shown.segment());
    absl::StatusOr<TensorSlice> slice =
        SeenSlice(shown, segment == segments_.end() ? nullptr : segment->second);
    if (!slice.ok()) return slice.status();
    slices.push_back(*std::move(slice));
  }
  options_.shard->Push(
      request.push(), slices, time,
      [self = shared_from_this(), call = request.call(), time](absl::StatusOr<PushReply> answer) {
        LocalReply reply;
        const absl::Status status = answer.status();
        if (answer.ok()) *reply.mutable_push() = *std::move(answer);
        self->Answer("Push", call, time, status, reply);
      });
  return absl::OkStatus();
}

void LocalGuest::Complete(const LocalRequest& request, CallTime time) {
  options_.shard->Complete(request.complete(), time,
                           [self = shared_from_this(), call = request.call(),
                            time](absl::StatusOr<CompleteReply> answer) {
                             LocalReply reply;
                             const absl::Status status = answer.status();
                             if (answer.ok()) *reply.mutable_complete() = *std::move(answer);
                             self->Answer("Complete", call, time, status, reply);
                           });
}

void LocalGuest::Pull(const LocalRequest& request, CallTime time) {
  options_.shard->Pull(request.pull(), time,
                       [self = shared_from_this(), call = request.call(),
                        time](const absl::StatusOr<PulledVersion>& pulled) {
                         LocalReply reply;
                         absl::Status status = pulled.status();
                         std::vector<SegmentHeap::Place> places;
                         if (pulled.ok()) status = self->Show(call, *pulled, reply, places);
                         self->Answer("Pull", call, time, status, reply, places);
                       });
}

absl::Status LocalGuest::Show(uint64_t call, const PulledVersion& pulled, LocalReply& reply,
                              std::vector<SegmentHeap::Place>& places) {
  std::vector<PinnedBuffer> pins;
  for (const PulledVersion::OneSlice& each : pulled.slices) {
    TensorSlice slice;
    slice.slice = each.slice;
    slice.dtype = each.dtype;
    slice.bytes = TensorBytes::Piece(each.values->data(), each.values->size());
    slice.loan = each.values->Lend();
    std::optional<SegmentHeap::Place> place = ShowSlice(slice, *options_.heap, *reply.add_slices());
    if (!place.has_value()) {
      reply.clear_slices();
      return absl::UnimplementedError("these values lie in no shared memory");
    }
    if (places.empty() || places.back().segment != place->segment) {
      places.push_back(*std::move(place));
    }
    pins.push_back(each.values);
  }
  *reply.mutable_pull() = HeadOf(pulled);
  if (pins.empty()) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  if (closed_) return absl::OkStatus();
  held_[call] = std::move(pins);
  // Whoever reads those still finds out that they have been written again.
  if (held_.size() > kMostHeld) held_.erase(held_.begin());
  return absl::OkStatus();
}

void LocalGuest::Answer(const char* method, uint64_t call, CallTime time,
                        const absl::Status& status, LocalReply& reply,
                        const std::vector<SegmentHeap::Place>& places) {
  reply.set_call(call);
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
  // One who does not read its answers has to come again.
  if (!Send(reply, places).ok()) Close();
  if (options_.observer) {
    options_.observer(method, static_cast<int>(status.code()), SteadyNow() - time.now);
  }
}

absl::Status LocalGuest::Send(LocalReply& reply, const std::vector<SegmentHeap::Place>& places) {
  absl::MutexLock lock(&mu_);
  if (closed_) return absl::OkStatus();
  std::vector<int> files;
  for (const SegmentHeap::Place& place : places) {
    if (!shown_.insert(place.segment).second) continue;
    reply.add_segments(place.segment);
    files.push_back(place.memory->fd().get());
  }
  const std::string bytes = reply.SerializeAsString();
  if (bytes.size() <= LocalSocket::kMostBytes && files.size() <= LocalSocket::kMostFiles) {
    return socket_->Send(bytes, files);
  }
  for (const uint32_t segment : reply.segments()) shown_.erase(segment);
  held_.erase(reply.call());
  LocalReply too_large;
  too_large.set_call(reply.call());
  too_large.set_code(static_cast<int>(absl::StatusCode::kUnimplemented));
  too_large.set_message("the answer is too large for a local message");
  return socket_->Send(too_large.SerializeAsString());
}

}  // namespace parley
