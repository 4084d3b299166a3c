#include "client/parley/scrape.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock/steady_now.h"
#include "common/file_descriptor.h"

namespace parley {
namespace {

constexpr size_t kMostBytes = 16 << 20;  // of an answer

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is no HOST:PORT"));
  }
  const std::string host(absl::StripSuffix(absl::StripPrefix(address.substr(0, colon), "["), "]"));
  const std::string port = address.substr(colon + 1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(address, ": ", ::gai_strerror(error)));
  }
  return Addresses(found);
}

// One question and its answer, by a socket that does not block: connects, sends, then receives
// until the other side closes.
class Scrape {
 public:
  explicit Scrape(const std::string& address)
      : address_(address),
        request_(absl::StrCat("GET /metrics HTTP/1.0\r\nHost: ", address,
                              "\r\nAccept: text/plain\r\nConnection: close\r\n\r\n")) {
    Connect();
  }

  bool ended() const { return ended_; }
  pollfd wanted() const {
    return {fd_.get(), static_cast<int16_t>(request_.empty() ? POLLIN : POLLOUT), 0};
  }

  // The socket is ready.
  void GoOn() {
    if (!request_.empty()) return Send();
    Receive();
  }

  // The time is over.
  void GiveUp(absl::Duration timeout) {
    End(absl::DeadlineExceededError(
        absl::StrCat(address_, ": no answer within ", absl::FormatDuration(timeout))));
  }

  absl::StatusOr<std::string> TakeAnswer() {
    if (!status_.ok()) return status_;
    return std::move(answer_);
  }

 private:
  void End(absl::Status status) {
    ended_ = true;
    status_ = std::move(status);
    fd_ = FileDescriptor();
  }
  void Fail(int error) {
    End(absl::UnavailableError(
        absl::ErrnoToStatus(error, absl::StrCat(address_, ": cannot connect")).message()));
  }

  void Connect() {
    const auto found = Resolve(address_);
    if (!found.ok()) return End(found.status());
    const addrinfo& at = **found;
    fd_ = FileDescriptor(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd_.valid() ||
        (::connect(fd_.get(), at.ai_addr, at.ai_addrlen) != 0 && errno != EINPROGRESS)) {
      Fail(errno);
    }
  }

  void Send() {
    const ssize_t sent = ::send(fd_.get(), request_.data(), request_.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      request_.erase(0, static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      Fail(errno);
    }
  }

  void Receive() {
    std::array<char, 65536> buffer;
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) Fail(errno);
      return;
    }
    answer_.append(buffer.data(), static_cast<size_t>(got));
    if (answer_.size() > kMostBytes) {
      return End(absl::ResourceExhaustedError(
          absl::StrCat(address_, ": its answer has more than ", kMostBytes, " bytes")));
    }
    if (got == 0) TakeBody();
  }

  // All is there: what the head promises is compared with it.
  void TakeBody() {
    const auto is_none = [&](std::string_view why) {
      End(absl::DataLossError(
          absl::StrCat(address_, ": no metrics: ", absl::string_view(why.data(), why.size()))));
    };
    const size_t head_end = answer_.find("\r\n\r\n");
    if (head_end == std::string::npos) return is_none("the answer is no HTTP, or was cut off");
    const std::string head = absl::AsciiStrToLower(answer_.substr(0, head_end + 2));
    const std::string first_line = head.substr(0, head.find('\r'));
    if (!absl::StartsWith(head, "http/1.") || first_line.substr(8, 5) != " 200 ") {
      return is_none(first_line);
    }
    answer_.erase(0, head_end + 4);
    constexpr std::string_view kLength = "\r\ncontent-length:";
    const size_t at = head.find(kLength);
    uint64_t length = 0;
    if (at != std::string::npos) {
      const size_t begin = at + kLength.size();
      const std::string number = head.substr(begin, head.find('\r', begin) - begin);
      if (!absl::SimpleAtoi(number, &length) || length != answer_.size()) {
        return is_none("the answer was cut off");
      }
    }
    End(absl::OkStatus());
  }

  const std::string address_;
  std::string request_;  // what is still to be sent
  FileDescriptor fd_;
  std::string answer_;
  bool ended_ = false;
  absl::Status status_;
};

}  // namespace

Scrapes ScrapeAll(absl::Span<const std::string> addresses, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  std::map<std::string, Scrape> all;
  for (const std::string& address : addresses) all.try_emplace(address, address);
  while (true) {
    std::vector<pollfd> wanted;
    std::vector<Scrape*> open;
    for (auto& [address, scrape] : all) {
      if (scrape.ended()) continue;
      wanted.push_back(scrape.wanted());
      open.push_back(&scrape);
    }
    if (open.empty()) break;
    const int64_t left = absl::ToInt64Milliseconds(deadline - SteadyNow());
    if (left <= 0) {
      for (Scrape* scrape : open) scrape->GiveUp(timeout);
      break;
    }
    // Interrupted, it finds the sockets as they are.
    (void)::poll(wanted.data(), wanted.size(), static_cast<int>(left));
    for (size_t i = 0; i < open.size(); ++i) {
      if (wanted[i].revents != 0) open[i]->GoOn();
    }
  }
  Scrapes scrapes;
  for (auto& [address, scrape] : all) scrapes.emplace(address, scrape.TakeAnswer());
  return scrapes;
}

ScrapePoller::~ScrapePoller() {
  if (round_.joinable()) round_.join();
}

void ScrapePoller::Ask(std::vector<std::string> addresses) {
  if (round_.joinable()) return;
  ended_ = false;
  round_ = std::thread([this, addresses = std::move(addresses)] {
    scrapes_ = ScrapeAll(addresses, timeout_);
    ended_ = true;
  });
}

std::optional<Scrapes> ScrapePoller::Take() {
  if (!round_.joinable() || !ended_) return std::nullopt;
  round_.join();
  return std::move(scrapes_);
}

}  // namespace parley
