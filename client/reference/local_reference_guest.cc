#include "client/reference/local_reference_guest.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/reference/local_reference_link.h"
#include "client/reference/value_wire.h"
#include "common/clock/patience.h"
#include "common/clock/steady_now.h"

namespace parley {

absl::StatusOr<std::unique_ptr<LocalDoor>> LocalReferenceGuest::OpenDoor(
    const std::string& address, std::shared_ptr<ReferenceHost> host, RpcObserver observer) {
  return LocalDoor::Open(
      LocalReferenceName(address), [address, host, observer](std::unique_ptr<LocalSocket> socket) {
        return std::make_shared<LocalReferenceGuest>(address, host, std::move(socket), observer);
      });
}

void LocalReferenceGuest::Run() {
  absl::Status over;
  while (over.ok()) {
    absl::StatusOr<LocalMessage> message = peer_->Receive();
    over = message.ok() ? Handle(*std::move(message)) : message.status();
  }
  Close();
  segments_.clear();  // values that are in use keep theirs
}

absl::Status LocalReferenceGuest::Handle(LocalMessage message) {
  LocalCallRequest request;
  if (!request.ParseFromString(message.bytes)) {
    return absl::InvalidArgumentError("not a LocalCallRequest");
  }
  for (const uint32_t gone : request.gone()) segments_.erase(gone);
  absl::Status learnt = LearnSegments(request.segments(), std::move(message.files), segments_);
  if (!learnt.ok()) return learnt;
  if (!welcome_) {
    if (request.hello() != address_) {
      return absl::InvalidArgumentError("no hello, or another process is meant");
    }
    welcome_ = true;
    peer_->Answer(request.call(), absl::OkStatus());
    return absl::OkStatus();
  }
  if (!request.has_made()) return absl::InvalidArgumentError("a LocalCallRequest without a call");
  return Call(std::move(request));
}

absl::StatusOr<std::vector<TensorSlice>> LocalReferenceGuest::DataOf(LocalCallRequest& request) {
  using Data = google::protobuf::RepeatedPtrField<SliceData>;
  const auto inside = std::make_shared<Data>();
  inside->Swap(request.mutable_made()->mutable_data());
  std::vector<TensorSlice> data = ViewsOf(*inside);
  for (TensorSlice& slice : data) slice.owner = inside;
  for (const LocalBlock& block : request.blocks()) {
    const auto segment = segments_.find(block.segment());
    if (block.data() >= data.size() || segment == segments_.end() ||
        block.bytes() > segment->second->bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", block.data(), " is in block ",
                                                     block.segment(), ", where no memory is"));
    }
    TensorSlice& slice = data[block.data()];
    const std::shared_ptr<const MemorySegment>& memory = segment->second;
    slice.bytes = TensorBytes::Piece(memory->data(), block.bytes());
    slice.owner = std::shared_ptr<const void>(
        memory->data(),
        [peer = peer_, memory, number = block.segment()](const void*) { peer->Read(number); });
  }
  return data;
}

absl::Status LocalReferenceGuest::Call(LocalCallRequest request) {
  absl::StatusOr<std::vector<TensorSlice>> data = DataOf(request);
  if (!data.ok()) return data.status();
  absl::StatusOr<OutgoingCall> call =
      AssembleCall({std::move(*request.mutable_made()), *std::move(data)});
  if (!call.ok()) return call.status();
  const absl::Duration patience = PatienceOf(request.patience_us());
  const bool there = host_->With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.OnCall(*call, {now, now + patience}, replies,
                 [peer = peer_, number = request.call(), observer = observer_,
                  now](const absl::StatusOr<RemoteCallReply>& answer) {
                   peer->Answer(number, answer.status());
                   if (!observer) return;
                   observer("Call", static_cast<int>(answer.status().code()), SteadyNow() - now);
                 });
  });
  if (!there) {
    peer_->Answer(request.call(),
                  absl::UnavailableError("this process does not serve references now"));
  }
  return absl::OkStatus();
}

void LocalReferenceGuest::Peer::Answer(uint64_t call, const absl::Status& status) {
  LocalCallReply reply;
  reply.set_call(call);
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
  absl::MutexLock lock(&mu_);
  Send(reply);
}

void LocalReferenceGuest::Peer::Read(uint32_t segment) {
  LocalCallReply reply;
  absl::MutexLock lock(&mu_);
  read_.push_back(segment);
  Send(reply);
}

void LocalReferenceGuest::Peer::Send(LocalCallReply& reply) {
  reply.mutable_read()->Assign(read_.begin(), read_.end());
  // One who does not read its answers has to come again.
  if (!socket_->Send(reply.SerializeAsString()).ok()) return Close();
  read_.clear();
}

}  // namespace parley
