#include "common/direct/direct_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// Small frames are received here, many at a time; of a large one only the beginning.
constexpr size_t kScratchBytes = 32 << 10;
// Of what is encrypted as much at once: it is still in the processor's cache when it is opened.
constexpr size_t kSealedBytes = 256 << 10;
// A socket that is always ready leaves the loop to the others after so much.
constexpr size_t kTurnBytes = 4 << 20;
constexpr size_t kMostParts = 64;
// For so many ticks of the loop, some seconds, nothing was sent: memory for it is given back.
constexpr int kIdleTicks = 50;
constexpr size_t kMostWaitingBytes = size_t{1} << 30;

absl::Status PeerGone() {
  return absl::UnavailableError("the other side has ended the connection");
}
absl::Status Broken(int error) {
  return absl::UnavailableError(absl::StrCat("the connection broke: ", std::strerror(error)));
}

bool IsLater(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// How many bytes; 0: not now.
absl::StatusOr<size_t> SendParts(int fd, absl::Span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t written = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (written >= 0) return static_cast<size_t>(written);
  if (IsLater(errno)) return 0;
  return Broken(errno);
}

absl::StatusOr<size_t> ReceiveParts(int fd, const iovec* parts, int count) {
  const ssize_t got = ::readv(fd, parts, count);
  if (got > 0) return static_cast<size_t>(got);
  if (got < 0 && IsLater(errno)) return 0;
  return got == 0 ? PeerGone() : Broken(errno);
}

}  // namespace

std::shared_ptr<DirectConnection> DirectConnection::Start(DirectLoop& loop, FileDescriptor fd,
                                                          std::unique_ptr<TlsStream> tls,
                                                          std::shared_ptr<ReceiveBuffers> buffers,
                                                          std::shared_ptr<Reader> reader) {
  std::shared_ptr<DirectConnection> connection(new DirectConnection(
      loop, std::move(fd), std::move(tls), std::move(buffers), std::move(reader)));
  return loop.Watch(connection) ? connection : nullptr;
}

absl::StatusOr<uint64_t> DirectConnection::Send(DirectFrame frame,
                                                std::vector<TensorSlice> slices) {
  if (slices.size() > kMostSlices || frame.ByteSizeLong() + 64 * slices.size() > kMostFrameBytes ||
      OutgoingFrame::BytesBehind(slices) > kMostTensorBytes) {
    return absl::InvalidArgumentError("larger than a direct frame may be");
  }
  auto outgoing = std::make_unique<OutgoingFrame>(std::move(frame), std::move(slices));
  absl::MutexLock lock(&mu_);
  if (!over_.ok()) return over_;
  if (bytes_left_ + outgoing->bytes_left() > kMostWaitingBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes_left_, " bytes wait to be sent: the other side does not read"));
  }
  bytes_left_ += outgoing->bytes_left();
  outgoing_.push_back(std::move(outgoing));
  const uint64_t number = sent_ + outgoing_.size();
  if (outgoing_.size() == 1) Write();
  return number;
}

bool DirectConnection::IsSent(uint64_t frame) const {
  absl::MutexLock lock(&mu_);
  return frame <= sent_ || !over_.ok();
}

bool DirectConnection::HasUnsent() const {
  absl::MutexLock lock(&mu_);
  return !outgoing_.empty();
}

absl::Span<const iovec> DirectConnection::NextParts(absl::Span<iovec> parts) const {
  size_t count = 0;
  for (const auto& frame : outgoing_) {
    if (count == parts.size()) break;
    count += frame->Parts(parts.subspan(count));
  }
  return parts.first(count);
}

void DirectConnection::Advance(size_t bytes) {
  bytes_left_ -= bytes;
  while (bytes > 0) {
    OutgoingFrame& frame = *outgoing_.front();
    const size_t of_it = std::min(bytes, frame.bytes_left());
    frame.Sent(of_it);
    bytes -= of_it;
    if (frame.bytes_left() > 0) break;
    outgoing_.pop_front();
    ++sent_;
  }
}

absl::StatusOr<size_t> DirectConnection::WritePlain() {
  if (outgoing_.empty()) return 0;
  std::array<iovec, kMostParts> room;
  const absl::Span<const iovec> parts = NextParts(absl::MakeSpan(room));
  const absl::StatusOr<size_t> written = SendParts(fd_.get(), parts);
  if (written.ok()) Advance(*written);
  return written;
}

absl::StatusOr<size_t> DirectConnection::WriteSealed() {
  if (sealed_at_ == sealed_.size()) {
    sealed_.clear();
    sealed_at_ = 0;
    idle_ticks_ = 0;
    sealed_.reserve(std::min(bytes_left_, TlsStream::kMostSealed));
    std::array<iovec, kMostParts> room;
    const absl::StatusOr<size_t> taken = tls_->Seal(NextParts(absl::MakeSpan(room)), sealed_);
    if (!taken.ok()) return taken.status();
    Advance(*taken);
    if (sealed_.empty()) return 0;
  }
  return SendSealed();
}

absl::StatusOr<size_t> DirectConnection::SendSealed() {
  const iovec part = {sealed_.data() + sealed_at_, sealed_.size() - sealed_at_};
  const absl::StatusOr<size_t> written = SendParts(fd_.get(), {&part, 1});
  if (written.ok()) sealed_at_ += *written;
  return written;
}

void DirectConnection::Write() {
  size_t last = 0;
  size_t turn = 0;
  do {
    const absl::StatusOr<size_t> written = tls_ == nullptr ? WritePlain() : WriteSealed();
    if (!written.ok()) return CloseLocked(written.status());
    last = *written;
    turn += last;
  } while (last > 0 && turn < kTurnBytes);
  const bool full = tls_ == nullptr ? !outgoing_.empty() : sealed_at_ < sealed_.size();
  // Frames that wait for the other side's greeting do not wait for room.
  const bool wants_room = full || (last > 0 && !outgoing_.empty());
  if (wants_room_ != wants_room) {
    wants_room_ = wants_room;
    loop_.Want(*this, wants_room_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

void DirectConnection::Close(absl::Status why) {
  absl::MutexLock lock(&mu_);
  CloseLocked(std::move(why));
}

void DirectConnection::CloseLocked(absl::Status why) {
  if (!over_.ok()) return;
  over_ = std::move(why);
  outgoing_.clear();
  bytes_left_ = 0;
  DropSealed();
  ::shutdown(fd_.get(), SHUT_RDWR);  // the loop reads an end
}

void DirectConnection::DropSealed() {
  std::string().swap(sealed_);
  sealed_at_ = 0;
}

absl::Status DirectConnection::Read() { return tls_ == nullptr ? ReadPlain() : ReadSealed(); }

absl::Status DirectConnection::ReadPlain() {
  std::array<std::byte, kScratchBytes> scratch;
  for (size_t turn = 0; turn < kTurnBytes;) {
    const absl::Span<std::byte> room = incoming_.Room();
    iovec parts[] = {{room.data(), room.size()}, {scratch.data(), scratch.size()}};
    const iovec* const first = room.empty() ? parts + 1 : parts;
    const int count = room.empty() || room.size() > kScratchBytes ? 1 : 2;
    const absl::StatusOr<size_t> bytes = ReceiveParts(fd_.get(), first, count);
    if (!bytes.ok()) return bytes.status();
    if (*bytes == 0) break;
    turn += *bytes;
    const size_t filled = std::min(*bytes, room.size());
    if (filled > 0) incoming_.Filled(filled, whole_);
    if (*bytes > filled) {
      absl::Status taken =
          incoming_.Take(absl::MakeConstSpan(scratch).first(*bytes - filled), whole_);
      if (!taken.ok()) return taken;
    }
    if (absl::Status handled = HandOver(); !handled.ok()) return handled;
    if (*bytes < first->iov_len) break;  // there was no more
  }
  return absl::OkStatus();
}

absl::Status DirectConnection::ReadSealed() {
  std::array<std::byte, kSealedBytes> sealed;
  const iovec room = {sealed.data(), sealed.size()};
  for (size_t turn = 0; turn < kTurnBytes;) {
    const absl::StatusOr<size_t> bytes = ReceiveParts(fd_.get(), &room, 1);
    if (!bytes.ok()) return bytes.status();
    if (*bytes == 0) break;
    turn += *bytes;
    tls_->Came(absl::MakeConstSpan(sealed).first(*bytes));
    absl::Status opened = OpenAll();
    const bool was_greeted = std::exchange(greeted_, tls_->IsGreeted());
    if (tls_->HasSealed() || greeted_ != was_greeted) Answer(opened);
    if (!opened.ok()) return opened;
    if (*bytes < sealed.size()) break;  // there was no more
  }
  return absl::OkStatus();
}

absl::Status DirectConnection::OpenAll() {
  std::array<std::byte, kScratchBytes> scratch;
  while (true) {
    const absl::Span<std::byte> room = incoming_.Room();
    const absl::StatusOr<size_t> bytes = tls_->Open(room.empty() ? absl::MakeSpan(scratch) : room);
    if (!bytes.ok()) return bytes.status();
    if (*bytes == 0) return absl::OkStatus();
    if (room.empty()) {
      absl::Status taken = incoming_.Take(absl::MakeConstSpan(scratch).first(*bytes), whole_);
      if (!taken.ok()) return taken;
    } else {
      incoming_.Filled(*bytes, whole_);
    }
    if (absl::Status handled = HandOver(); !handled.ok()) return handled;
  }
}

void DirectConnection::Answer(const absl::Status& opened) {
  absl::MutexLock lock(&mu_);
  if (!over_.ok()) return;
  if (opened.ok()) return Write();  // more of the greeting, and what waited for it
  // Why it ends, as far as the socket takes it.
  (void)tls_->Seal({}, sealed_);
  (void)SendSealed();
}

absl::Status DirectConnection::HandOver() {
  for (ReceivedFrame& frame : whole_) {
    if (absl::Status handled = reader_->OnFrame(*this, std::move(frame)); !handled.ok()) {
      return handled;
    }
  }
  whole_.clear();
  return absl::OkStatus();
}

bool DirectConnection::OnReady(uint32_t ready) {
  if (reader_ == nullptr) return false;
  if ((ready & EPOLLOUT) != 0) {
    absl::MutexLock lock(&mu_);
    if (over_.ok()) Write();
  }
  if ((ready & ~uint32_t{EPOLLOUT}) == 0) return true;
  if (absl::Status read = Read(); !read.ok()) {
    Close(std::move(read));
    End();
    return false;
  }
  return true;
}

void DirectConnection::OnTick(absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    if (++idle_ticks_ >= kIdleTicks && sealed_at_ == sealed_.size()) DropSealed();
  }
  if (reader_ != nullptr) reader_->OnTick(*this, now);
}

void DirectConnection::OnStop() {
  Close(absl::CancelledError("this process is ending"));
  End();
}

void DirectConnection::End() {
  const std::shared_ptr<Reader> reader = std::exchange(reader_, nullptr);
  if (reader == nullptr) return;
  absl::Status why;
  {
    absl::MutexLock lock(&mu_);
    why = over_;
  }
  reader->OnEnd(*this, why);
}

}  // namespace parley
