#include "common/rpc/front_door.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <deque>

#include "common/clock/steady_now.h"
#include "common/direct/tcp_socket.h"

namespace parley {
namespace {

// What tells a client of gRPC from anything else: of a TLS record the kind (handshake) and the
// version's first byte, or the begin of HTTP/2's preface "PRI * HTTP/2.0".
constexpr size_t kFirstBytes = 3;

bool IsAClient(const std::array<unsigned char, kFirstBytes>& first, bool tls) {
  if (tls) return first[0] == 22 && first[1] == 3;
  return first[0] == 'P' && first[1] == 'R' && first[2] == 'I';
}

// From how many bytes on there is something to read.
void SetLowWater(int fd, int bytes) {
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

}  // namespace

// Somebody who has connected, and has not begun. All on the loop's thread.
class FrontDoor::Visitor final : public DirectLoop::Watched {
 public:
  Visitor(const FrontDoor& door, FileDescriptor connection, absl::Time came)
      : door_(door),
        fd_(connection.get()),
        peer_(PeerOf(connection)),
        connection_(std::move(connection)),
        came_(came) {
    SetLowWater(fd_, kFirstBytes);
  }

  // Also when the connection is another's by now: the loop takes it off its list by that.
  int fd() const override { return fd_; }

  bool OnReady(uint32_t /*ready*/) override {
    if (!connection_.valid()) return false;
    std::array<unsigned char, kFirstBytes> first{};
    const ssize_t size = ::recv(fd_, first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
    if (size < static_cast<ssize_t>(kFirstBytes)) {
      // He has gone, or had to; who has said nothing at all may only have looked whether the port
      // answers.
      if (refused_) door_.Refuse(kIdle, peer_);
      if (!refused_ && size > 0) door_.Refuse(kGarbage, peer_);
      return false;
    }
    if (!IsAClient(first, door_.options_.tls)) {
      door_.Refuse(kGarbage, peer_);
      return false;
    }
    SetLowWater(fd_, 1);
    door_.admit_(std::move(connection_), peer_);
    return false;
  }
  void OnTick(absl::Time now) override {
    if (now > came_ + door_.options_.patience) TurnAway();
  }
  void OnStop() override {}

  // The loop finds it at its end then.
  void TurnAway() {
    if (!connection_.valid() || refused_) return;
    refused_ = true;
    (void)::shutdown(fd_, SHUT_RDWR);
  }
  bool waits() const { return connection_.valid() && !refused_; }

 private:
  const FrontDoor& door_;
  const int fd_;
  const std::string peer_;  // asked for at once: of one who has gone the system says it no more
  FileDescriptor connection_;
  const absl::Time came_;
  bool refused_ = false;
};

// The listening socket. All on the loop's thread.
class FrontDoor::Threshold final : public DirectLoop::Watched {
 public:
  // loop: the door's, which it may have no more when this is told something for the last time.
  Threshold(const FrontDoor& door, DirectLoop& loop, FileDescriptor listener)
      : door_(door), loop_(loop), listener_(std::move(listener)) {}

  int fd() const override { return listener_.get(); }

  bool OnReady(uint32_t /*ready*/) override {
    // Some at a time: those who wait are heard in between.
    for (int i = 0; i < kAtOnce; ++i) {
      absl::StatusOr<FileDescriptor> connection = AcceptTcp(listener_);
      if (absl::IsNotFound(connection.status())) return true;
      if (absl::IsResourceExhausted(connection.status())) {
        MakeRoom(waiting_.size() / 2);
        loop_.Want(*this, 0);  // until the next tick
        full_ = true;
        return true;
      }
      if (!connection.ok()) continue;
      MakeRoom(door_.options_.most_waiting - 1);
      auto visitor = std::make_shared<Visitor>(door_, *std::move(connection), SteadyNow());
      if (loop_.Watch(visitor)) waiting_.push_back(visitor);
    }
    return true;
  }
  void OnTick(absl::Time /*now*/) override {
    if (std::exchange(full_, false)) loop_.Want(*this, EPOLLIN);
  }
  void OnStop() override {}

 private:
  static constexpr int kAtOnce = 64;

  // Turns those away who have waited longest, until so many are left.
  void MakeRoom(size_t left) {
    std::erase_if(waiting_, [](const auto& visitor) {
      const auto here = visitor.lock();
      return here == nullptr || !here->waits();
    });
    for (; waiting_.size() > left; waiting_.pop_front()) {
      if (const auto here = waiting_.front().lock()) here->TurnAway();
    }
  }

  const FrontDoor& door_;
  DirectLoop& loop_;
  const FileDescriptor listener_;
  std::deque<std::weak_ptr<Visitor>> waiting_;  // those who came first are at the front
  bool full_ = false;
};

absl::StatusOr<std::unique_ptr<FrontDoor>> FrontDoor::Listen(Options options) {
  absl::StatusOr<TcpListener> listener = ListenTcp(options.host, options.port);
  if (!listener.ok()) return listener.status();
  const uint16_t port = listener->port;
  return std::unique_ptr<FrontDoor>(
      new FrontDoor(std::move(options), std::move(listener->fd), port));
}

FrontDoor::~FrontDoor() { loop_.reset(); }

absl::Status FrontDoor::Open(Admit admit) {
  admit_ = std::move(admit);
  absl::StatusOr<std::unique_ptr<DirectLoop>> loop = DirectLoop::Start();
  if (!loop.ok()) return absl::UnavailableError(loop.status().message());
  loop_ = *std::move(loop);
  if (!loop_->Watch(std::make_shared<Threshold>(*this, *loop_, std::move(listener_)))) {
    return absl::UnavailableError("the system does not let a listening socket be watched");
  }
  return absl::OkStatus();
}

}  // namespace parley
