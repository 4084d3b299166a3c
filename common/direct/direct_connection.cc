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
// A socket that is always ready leaves the loop to the others after so much.
constexpr size_t kTurnBytes = 4 << 20;
constexpr size_t kMostParts = 64;
constexpr size_t kMostWaitingBytes = size_t{1} << 30;

absl::Status PeerGone() {
  return absl::UnavailableError("the other side has ended the connection");
}
absl::Status Broken(int error) {
  return absl::UnavailableError(absl::StrCat("the connection broke: ", std::strerror(error)));
}

bool IsLater(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

std::shared_ptr<DirectConnection> DirectConnection::Start(DirectLoop& loop, FileDescriptor fd,
                                                          std::shared_ptr<ReceiveBuffers> buffers,
                                                          std::shared_ptr<Reader> reader) {
  std::shared_ptr<DirectConnection> connection(
      new DirectConnection(loop, std::move(fd), std::move(buffers), std::move(reader)));
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

void DirectConnection::Write() {
  std::array<iovec, kMostParts> parts;
  for (size_t turn = 0; !outgoing_.empty() && turn < kTurnBytes;) {
    size_t count = 0;
    for (const auto& frame : outgoing_) {
      if (count == parts.size()) break;
      count += frame->Parts(absl::MakeSpan(parts).subspan(count));
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t written = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0) {
      if (!IsLater(errno)) return CloseLocked(Broken(errno));
      break;
    }
    auto left = static_cast<size_t>(written);
    turn += left;
    bytes_left_ -= left;
    while (left > 0) {
      OutgoingFrame& frame = *outgoing_.front();
      const size_t of_it = std::min(left, frame.bytes_left());
      frame.Sent(of_it);
      left -= of_it;
      if (frame.bytes_left() > 0) break;
      outgoing_.pop_front();
      ++sent_;
    }
  }
  if (wants_room_ != !outgoing_.empty()) {
    wants_room_ = !wants_room_;
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
  ::shutdown(fd_.get(), SHUT_RDWR);  // the loop reads an end
}

absl::Status DirectConnection::Read() {
  std::array<std::byte, kScratchBytes> scratch;
  for (size_t turn = 0; turn < kTurnBytes;) {
    const absl::Span<std::byte> room = incoming_.Room();
    iovec parts[] = {{room.data(), room.size()}, {scratch.data(), scratch.size()}};
    const iovec* const first = room.empty() ? parts + 1 : parts;
    const int count = room.empty() || room.size() > kScratchBytes ? 1 : 2;
    const ssize_t got = ::readv(fd_.get(), first, count);
    if (got == 0) return PeerGone();
    if (got < 0) return IsLater(errno) ? absl::OkStatus() : Broken(errno);
    const auto bytes = static_cast<size_t>(got);
    turn += bytes;
    const size_t filled = std::min(bytes, room.size());
    if (filled > 0) incoming_.Filled(filled, whole_);
    if (bytes > filled) {
      absl::Status taken =
          incoming_.Take(absl::MakeConstSpan(scratch).first(bytes - filled), whole_);
      if (!taken.ok()) return taken;
    }
    for (ReceivedFrame& frame : whole_) {
      if (absl::Status handled = reader_->OnFrame(*this, std::move(frame)); !handled.ok()) {
        return handled;
      }
    }
    whole_.clear();
    if (bytes < first->iov_len) break;  // there was no more
  }
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
