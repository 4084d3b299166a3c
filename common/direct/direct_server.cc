#include "common/direct/direct_server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/patience.h"
#include "common/clock/steady_now.h"
#include "common/seed.h"

namespace parley {
namespace {

// How long one who has come may take to say whom it means.
constexpr absl::Duration kHello = absl::Seconds(10);
// Who have come and not said it; the one that came first makes room for another one.
constexpr size_t kMostWaiting = 256;
// Some at a time: those who have come are heard in between.
constexpr int kAtOnce = 64;
constexpr size_t kKeptBytes = 256 << 20;

}  // namespace

// The server's end of a connection.
class DirectServer::Guest final : public DirectConnection::Reader {
 public:
  Guest(DirectServer& server, std::string peer, absl::Time came)
      : server_(server), peer_(std::move(peer)), came_(came) {}

  absl::Status OnFrame(DirectConnection& connection, ReceivedFrame frame) override {
    if (!welcome_) {
      if (frame.what.what_case() != DirectFrame::kHello) {
        return absl::InvalidArgumentError("no hello");
      }
      if (frame.what.hello() != server_.token_) {
        return absl::UnauthenticatedError("another process is meant");
      }
      welcome_ = true;
      connection.Welcome();
      Respond(connection, frame.what.call(), absl::OkStatus(), DirectFrame(), {});
      return absl::OkStatus();
    }
    const auto method = server_.methods_.find(frame.what.request().method());
    if (!frame.what.has_request() || method == server_.methods_.end()) {
      return absl::InvalidArgumentError("no call of a method that is served so");
    }
    DirectRequest& request = *frame.what.mutable_request();
    Call call;
    call.message = std::move(*request.mutable_message());
    call.slices = std::move(frame.slices);
    call.patience = PatienceOf(request.patience_us());
    call.answer = [to = connection.weak_from_this(), number = frame.what.call()](
                      const absl::Status& status, const google::protobuf::MessageLite& reply,
                      std::vector<TensorSlice> slices) {
      if (const auto here = to.lock()) Respond(*here, number, status, reply, std::move(slices));
    };
    ++server_.calls_;
    return method->second(std::move(call));
  }

  void OnTick(DirectConnection& connection, absl::Time now) override {
    if (!welcome_ && now > came_ + kHello)
      connection.Close(absl::DeadlineExceededError("no hello"));
  }

  void OnEnd(DirectConnection& /*connection*/, const absl::Status& why) override {
    if (welcome_ || !server_.refused_) return;
    // Who goes by himself was not refused.
    if (absl::IsInvalidArgument(why)) server_.refused_(kGarbage, peer_);
    if (absl::IsUnauthenticated(why)) server_.refused_(kWrongToken, peer_);
    if (absl::IsDeadlineExceeded(why)) server_.refused_(kIdle, peer_);
    if (absl::IsFailedPrecondition(why)) server_.refused_(kNoCertificate, peer_);
    if (absl::IsPermissionDenied(why)) server_.refused_(kWrongCertificate, peer_);
  }

  // Any thread.
  bool is_welcome() const { return welcome_; }

 private:
  static void Respond(DirectConnection& connection, uint64_t call, const absl::Status& status,
                      const google::protobuf::MessageLite& reply, std::vector<TensorSlice> slices) {
    DirectFrame frame;
    frame.set_call(call);
    DirectAnswer& answer = *frame.mutable_answer();
    answer.set_code(static_cast<int>(status.code()));
    if (status.ok()) {
      answer.set_message(reply.SerializeAsString());
    } else {
      answer.set_text(std::string(status.message()));
      slices.clear();
    }
    // One who does not read its answers has to come again.
    const auto sent = connection.Send(std::move(frame), std::move(slices));
    if (!sent.ok()) connection.Close(sent.status());
  }

  DirectServer& server_;
  const std::string peer_;
  const absl::Time came_;
  std::atomic<bool> welcome_ = false;  // set by the loop
};

// The listening socket.
class DirectServer::Door final : public DirectLoop::Watched {
 public:
  // loops: the server's; this is watched by the first one, whose end is the first.
  Door(DirectServer& server, std::vector<DirectLoop*> loops, FileDescriptor fd)
      : server_(server), loops_(std::move(loops)), fd_(std::move(fd)) {}

  int fd() const override { return fd_.get(); }

  bool OnReady(uint32_t /*ready*/) override {
    for (int i = 0; i < kAtOnce; ++i) {
      absl::StatusOr<FileDescriptor> fd = AcceptTcp(fd_);
      if (absl::IsNotFound(fd.status())) return true;
      if (absl::IsResourceExhausted(fd.status())) {
        MakeRoom(waiting_.size() / 2);
        closed_ = true;
        loops_.front()->Want(*this, 0);  // until files may have been closed
        return true;
      }
      if (!fd.ok()) continue;
      MakeRoom(kMostWaiting - 1);
      std::unique_ptr<TlsStream> tls;
      if (server_.tls_ != nullptr) {
        auto made = TlsStream::Make(server_.tls_, TlsStream::Side::kAccepts);
        if (!made.ok()) continue;
        tls = *std::move(made);
      }
      const auto guest = std::make_shared<Guest>(server_, PeerOf(*fd), SteadyNow());
      const auto connection =
          DirectConnection::Start(*loops_[next_++ % loops_.size()], *std::move(fd), std::move(tls),
                                  server_.buffers_, guest);
      if (connection != nullptr) waiting_.push_back({guest, connection});
    }
    return true;
  }
  void OnTick(absl::Time /*now*/) override {
    if (std::exchange(closed_, false)) loops_.front()->Want(*this, EPOLLIN);
  }
  void OnStop() override {}

 private:
  struct Waiting {
    std::weak_ptr<Guest> guest;  // it has none any more when it is over
    std::weak_ptr<DirectConnection> connection;
  };

  // Ends the connections of those who have waited longest, until so many are left.
  void MakeRoom(size_t left) {
    std::erase_if(waiting_, [](const Waiting& one) {
      const auto guest = one.guest.lock();
      return guest == nullptr || guest->is_welcome();
    });
    for (; waiting_.size() > left; waiting_.pop_front()) {
      const auto connection = waiting_.front().connection.lock();
      if (connection != nullptr)
        connection->Close(absl::DeadlineExceededError("too many say no hello"));
    }
  }

  DirectServer& server_;
  const std::vector<DirectLoop*> loops_;
  const FileDescriptor fd_;
  std::deque<Waiting> waiting_;  // those who came first are at the front
  bool closed_ = false;
  size_t next_ = 0;
};

absl::StatusOr<std::unique_ptr<DirectServer>> DirectServer::Start(const std::string& host,
                                                                  size_t threads, Methods methods,
                                                                  const Entry& entry) {
  absl::StatusOr<SharedTlsContext> tls = TlsContextFor(entry.credentials);
  if (!tls.ok()) return tls.status();
  absl::StatusOr<TcpListener> listener = ListenTcp(host);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<DirectServer> server(
      new DirectServer(listener->port, std::move(methods), *std::move(tls), entry.refused));
  std::vector<DirectLoop*> loops;
  for (size_t i = 0; i < std::max<size_t>(threads, 1); ++i) {
    absl::StatusOr<std::unique_ptr<DirectLoop>> loop = DirectLoop::Start();
    if (!loop.ok() && !loops.empty()) break;  // fewer do, too
    if (!loop.ok()) return loop.status();
    loops.push_back(server->loops_.emplace_back(*std::move(loop)).get());
  }
  if (!loops.front()->Watch(std::make_shared<Door>(*server, loops, std::move(listener->fd)))) {
    return absl::UnavailableError(absl::StrCat(host, ": cannot listen for direct connections"));
  }
  return server;
}

DirectServer::DirectServer(uint16_t port, Methods methods, SharedTlsContext tls,
                           Refusals::Told refused)
    : port_(port),
      token_(RandomIncarnation()),
      methods_(std::move(methods)),
      tls_(std::move(tls)),
      refused_(std::move(refused)),
      buffers_(std::make_shared<ReceiveBuffers>(kKeptBytes)) {}

DirectServer::~DirectServer() {
  // The first one's thread gives connections to the others.
  for (auto& loop : loops_) loop.reset();
}

FindDirectReply DirectServer::Found() const {
  FindDirectReply found;
  found.set_port(port_);
  found.set_token(token_);
  return found;
}

}  // namespace parley
