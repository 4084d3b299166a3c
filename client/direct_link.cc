#include "client/direct_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/patience.h"
#include "common/clock/steady_now.h"
#include "common/direct/tcp_socket.h"

namespace parley {
namespace {

// To find the server, to connect, and to be greeted, each.
constexpr absl::Duration kHello = absl::Seconds(10);
// After a connection that was not to be had.
constexpr absl::Duration kFirstRest = absl::Seconds(1);
constexpr absl::Duration kLongestRest = absl::Seconds(60);

}  // namespace

// What the connection has of the link.
class DirectLink::Ear final : public DirectConnection::Reader {
 public:
  explicit Ear(std::shared_ptr<DirectLink> link) : link_(std::move(link)) {}

  absl::Status OnFrame(DirectConnection& connection, ReceivedFrame frame) override {
    if (!frame.what.has_answer()) return absl::InvalidArgumentError("not an answer");
    connection.Welcome();  // the first answer is that to the hello
    link_->OnAnswer(std::move(frame));
    return absl::OkStatus();
  }
  void OnTick(DirectConnection& connection, absl::Time now) override {
    link_->OnTick(connection, now);
  }
  void OnEnd(DirectConnection& /*connection*/, const absl::Status& why) override {
    link_->OnEnd(why);
  }

 private:
  const std::shared_ptr<DirectLink> link_;
};

void DirectLink::Open() {
  {
    absl::MutexLock lock(&mu_);
    if (closed_ || opening_ || SteadyNow() < rest_until_) return;
    opening_ = true;
  }
  const auto peer = std::make_shared<std::string>();
  find_(SteadyNow() + kHello, peer,
        [self = shared_from_this(), peer](const absl::StatusOr<FindDirectReply>& found) {
          self->OnFound(*peer, found);
        });
}

void DirectLink::OnFound(const std::string& peer, const absl::StatusOr<FindDirectReply>& found) {
  absl::MutexLock lock(&mu_);
  if (closed_) return;
  if (found.ok() && found->port() != 0) connection_ = Connect(peer, *found);
  if (connection_ == nullptr) return Rest();
  Greet(found->token());
}

std::shared_ptr<DirectConnection> DirectLink::Connect(const std::string& peer,
                                                      const FindDirectReply& found) {
  std::unique_ptr<TlsStream> tls;
  if (tls_ != nullptr) {
    auto made = TlsStream::Make(tls_, TlsStream::Side::kConnects);
    if (!made.ok()) return nullptr;
    tls = *std::move(made);
  }
  absl::StatusOr<FileDescriptor> fd = ConnectTcp(peer, static_cast<uint16_t>(found.port()));
  if (!fd.ok()) return nullptr;
  return DirectConnection::Start(loop_, *std::move(fd), std::move(tls), buffers_,
                                 std::make_shared<Ear>(shared_from_this()));
}

void DirectLink::Greet(uint64_t token) {
  DirectFrame hello;
  hello.set_call(next_call_);
  hello.set_hello(token);
  // Whoever listens there now may be another process than was found.
  calls_[next_call_++] = {SteadyNow() + kHello,
                          [self = this](const absl::StatusOr<Reply>& reply) {
                            absl::MutexLock lock(&self->mu_);
                            if (self->connection_ == nullptr) return;
                            if (reply.ok()) {
                              self->ready_ = true;
                              self->rest_ = absl::ZeroDuration();
                            } else {
                              self->connection_->Close(reply.status());
                            }
                          },
                          0};
  const auto sent = connection_->Send(std::move(hello), {});
  if (!sent.ok()) connection_->Close(sent.status());
}

void DirectLink::Rest() {
  opening_ = false;
  rest_ = std::clamp(2 * rest_, kFirstRest, kLongestRest);
  rest_until_ = SteadyNow() + rest_;
}

bool DirectLink::Call(const char* method, const google::protobuf::MessageLite& message,
                      std::vector<TensorSlice> slices, absl::Time deadline, Done<Reply>& done) {
  if (!ready_) {
    Open();
    return false;
  }
  DirectFrame frame;
  DirectRequest& request = *frame.mutable_request();
  request.set_method(method);
  request.set_patience_us(PatienceUntil(deadline));
  request.set_message(message.SerializeAsString());
  std::shared_ptr<DirectConnection> connection;
  {
    absl::MutexLock lock(&mu_);
    if (closed_ || !ready_ || connection_ == nullptr) return false;
    connection = connection_;
    frame.set_call(next_call_);
    calls_[next_call_++] = {deadline, std::move(done), 0};
  }
  const uint64_t number = frame.call();
  const absl::StatusOr<uint64_t> sent = connection->Send(std::move(frame), std::move(slices));
  absl::MutexLock lock(&mu_);
  const auto call = calls_.find(number);
  if (call == calls_.end()) return true;  // it has ended meanwhile
  if (sent.ok()) {
    call->second.frame = *sent;
    return true;
  }
  done = std::move(call->second.done);
  calls_.erase(call);
  return false;
}

void DirectLink::OnAnswer(ReceivedFrame frame) {
  Done<Reply> done;
  {
    absl::MutexLock lock(&mu_);
    const auto call = calls_.find(frame.what.call());
    if (call == calls_.end()) return;  // its deadline is over
    done = std::move(call->second.done);
    calls_.erase(call);
  }
  DirectAnswer& answer = *frame.what.mutable_answer();
  if (answer.code() != 0) {
    done(absl::Status(static_cast<absl::StatusCode>(answer.code()), answer.text()));
  } else {
    done(Reply{std::move(*answer.mutable_message()), std::move(frame.slices)});
  }
}

void DirectLink::OnTick(DirectConnection& connection, absl::Time now) {
  std::vector<Done<Reply>> over;
  bool unsent = false;
  {
    absl::MutexLock lock(&mu_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (it->second.deadline > now) {
        ++it;
        continue;
      }
      unsent |= it->second.frame == 0 || !connection.IsSent(it->second.frame);
      over.push_back(std::move(it->second.done));
      it = calls_.erase(it);
    }
  }
  const absl::Status why =
      absl::DeadlineExceededError(absl::StrCat(address_, " did not answer in time"));
  // Its bytes may be others soon: no more of them may go.
  if (unsent) {
    connection.Close(why);
    ready_ = false;
  }
  for (const Done<Reply>& done : over) done(why);
}

void DirectLink::OnEnd(const absl::Status& why) {
  std::map<uint64_t, OpenCall> calls;
  {
    absl::MutexLock lock(&mu_);
    ready_ = false;
    connection_.reset();
    calls.swap(calls_);
    Rest();
  }
  const absl::Status status = absl::UnavailableError(absl::StrCat(address_, ": ", why.message()));
  for (const auto& [number, call] : calls) call.done(status);
}

void DirectLink::DropUnsent() {
  absl::MutexLock lock(&mu_);
  // Until it is ready, nothing but its own greeting waits there.
  if (ready_ && connection_ != nullptr && connection_->HasUnsent()) {
    ready_ = false;
    connection_->Close(absl::CancelledError("what was not sent yet has been given up"));
  }
}

void DirectLink::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  if (connection_ != nullptr) connection_->Close(absl::CancelledError("this process is ending"));
}

}  // namespace parley
