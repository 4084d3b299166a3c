#ifndef PARLEY_CLIENT_TESTING_SCRIPTED_DOOR_H_
#define PARLEY_CLIENT_TESTING_SCRIPTED_DOOR_H_

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "common/file_descriptor.h"
#include "common/shared_memory/local_slices.h"
#include "common/shared_memory/local_socket.h"
#include "proto/local_link.pb.h"

namespace parley {

// A shard's end of local links, one after the other, that says what a test has it say, however
// wrong. One thread uses it.
class ScriptedDoor {
 public:
  ScriptedDoor() : listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    // Not a LocalListener: what is accepted is to send more than a LocalSocket does.
    const std::string name = LocalName(address_);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    name.copy(at.sun_path + 1, sizeof(at.sun_path) - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0 ||
        ::listen(listener_.get(), 1) != 0) {
      std::abort();
    }
  }

  const std::string& address() const { return address_; }

  // The link that has been opened.
  void Accept() {
    fd_ = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    socket_ = std::make_unique<LocalSocket>(FileDescriptor(fd_));
  }

  // What the worker has said next; nullopt where it says nothing until then.
  std::optional<LocalRequest> Next(absl::Time deadline) {
    const absl::StatusOr<LocalMessage> message = socket_->Receive(deadline);
    LocalRequest request;
    if (!message.ok() || !request.ParseFromString(message->bytes)) return std::nullopt;
    return request;
  }

  // False where nobody hears it any more.
  bool Say(std::string_view bytes, absl::Span<const int> files = {}) {
    return socket_->Send(bytes, files).ok();
  }
  bool Say(const LocalReply& reply, absl::Span<const int> files = {}) {
    return Say(reply.SerializeAsString(), files);
  }

  // More than a message may have.
  void SayTooMuch() {
    const std::string bytes(LocalSocket::kMostBytes + 1, 'x');
    (void)::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  // As when its process dies: what it has not received resets the connection.
  void HangUp() { socket_.reset(); }

 private:
  static std::string DrawAddress() {
    static std::atomic<int> drawn = 0;
    return absl::StrCat("scripted:", ::getpid(), ".", ++drawn);
  }

  const std::string address_ = DrawAddress();
  const FileDescriptor listener_;
  int fd_ = -1;  // the socket's
  std::unique_ptr<LocalSocket> socket_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TESTING_SCRIPTED_DOOR_H_
