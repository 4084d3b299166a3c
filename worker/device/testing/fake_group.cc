#include "worker/device/testing/fake_group.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

// An abstract name.
socklen_t AddressOf(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

FileDescriptor Socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

std::string FakeGroup::MakeId() {
  static std::atomic<int> made = 0;
  return absl::StrCat("parley-fake-gpus ", getpid(), ".", ++made);
}

absl::StatusOr<std::unique_ptr<FakeGroup>> FakeGroup::Join(FakeDevice& device,
                                                           const Options& options,
                                                           absl::Time deadline) {
  auto group = absl::WrapUnique(new FakeGroup(device, options));
  group->sockets_.resize(options.ranks);
  absl::Status status = options.rank == 0 ? group->Accept(deadline) : group->Connect(deadline);
  if (!status.ok()) return status;
  group->thread_ = std::thread([group = group.get()] { group->Run(); });
  return group;
}

FakeGroup::~FakeGroup() {
  aborted_ = true;
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void FakeGroup::Run() {
  while (true) {
    std::shared_ptr<Exchange> exchange;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return ending_ || !exchanges_.empty();
      };
      mu_.Await(absl::Condition(&has_work));
      if (exchanges_.empty()) return;
      exchange = std::move(exchanges_.front());
      exchanges_.pop_front();
    }
    absl::Status status = failed();
    if (status.ok()) status = Do(*exchange);
    if (!status.ok()) {
      exchange->received.clear();
      Failed(status).IgnoreError();
    }
    exchange->done = true;
  }
}

absl::Status FakeGroup::Do(Exchange& exchange) {
  while (!device_.HasCome(*exchange.before)) {
    if (aborted_) return absl::CancelledError("the fake group was given up");
    absl::SleepFor(absl::Microseconds(50));
  }
  return exchange.run(exchange.received);
}

absl::Status FakeGroup::Launch(const std::string& what, const std::vector<Range>& reads,
                               const std::vector<Range>& writes,
                               std::function<absl::Status(std::vector<float>& received)> run,
                               std::function<void(const std::vector<float>& received)> take) {
  auto before = device_.MakeEvent();
  if (!before.ok()) return before.status();
  absl::Status status = device_.Record(**before, StreamId::kCommunication);
  if (!status.ok()) return status;
  auto exchange = std::make_shared<Exchange>();
  exchange->before = *std::move(before);
  exchange->run = std::move(run);
  status = device_.Join(
      StreamId::kCommunication, what, reads, writes, [exchange] { return exchange->done.load(); },
      [exchange, take = std::move(take)] {
        if (!exchange->received.empty()) take(exchange->received);
      });
  if (!status.ok()) return status;
  absl::MutexLock lock(&mu_);
  exchanges_.push_back(std::move(exchange));
  return absl::OkStatus();
}

absl::Status FakeGroup::Ready(int fd, short events, absl::Time deadline) const {
  while (true) {
    pollfd one = {fd, events, 0};
    const int found = ::poll(&one, 1, 5);
    if (aborted_ || (options_.cancelled && options_.cancelled())) {
      return absl::CancelledError("the fake group was given up");
    }
    if (found > 0) return absl::OkStatus();
    if (SteadyNow() > deadline) {
      return absl::DeadlineExceededError("the other fake devices have not answered");
    }
  }
}

absl::Status FakeGroup::Accept(absl::Time deadline) {
  const FileDescriptor listener = Socket();
  sockaddr_un address;
  const socklen_t size = AddressOf(options_.id, address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener.get(), 64) != 0) {
    return absl::InternalError(absl::StrCat("listening: ", std::strerror(errno)));
  }
  for (uint32_t come = 1; come < options_.ranks; ++come) {
    absl::Status ready = Ready(listener.get(), POLLIN, deadline);
    if (!ready.ok()) return ready;
    FileDescriptor socket(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ready = Ready(socket.get(), POLLIN, deadline);
    if (!ready.ok()) return ready;
    uint32_t rank = 0;
    if (::recv(socket.get(), &rank, sizeof rank, 0) != sizeof rank || rank >= options_.ranks) {
      return absl::UnavailableError("a rank of the fake group is lost");
    }
    sockets_[rank] = std::move(socket);
  }
  return absl::OkStatus();
}

absl::Status FakeGroup::Connect(absl::Time deadline) {
  sockaddr_un address;
  const socklen_t size = AddressOf(options_.id, address);
  while (true) {
    FileDescriptor socket = Socket();
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0) {
      if (::send(socket.get(), &options_.rank, sizeof options_.rank, MSG_NOSIGNAL) !=
          sizeof options_.rank) {
        return absl::UnavailableError("rank 0 of the fake group is lost");
      }
      sockets_[0] = std::move(socket);
      return absl::OkStatus();
    }
    if (options_.cancelled && options_.cancelled()) {
      return absl::CancelledError("the fake group was given up");
    }
    if (SteadyNow() > deadline) {
      return absl::DeadlineExceededError("rank 0 of the fake group has not come");
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
}

absl::Status FakeGroup::Send(uint32_t rank, const std::vector<float>& values, absl::Time deadline) {
  const auto* data = reinterpret_cast<const char*>(values.data());
  size_t left = values.size() * sizeof(float);
  while (left > 0) {
    absl::Status ready = Ready(sockets_[rank].get(), POLLOUT, deadline);
    if (!ready.ok()) return ready;
    const ssize_t sent = ::send(sockets_[rank].get(), data, left, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent <= 0) return absl::UnavailableError(absl::StrCat("rank ", rank, " is lost"));
    data += sent;
    left -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status FakeGroup::Receive(uint32_t rank, std::vector<float>& values, absl::Time deadline) {
  auto* data = reinterpret_cast<char*>(values.data());
  size_t left = values.size() * sizeof(float);
  while (left > 0) {
    absl::Status ready = Ready(sockets_[rank].get(), POLLIN, deadline);
    if (!ready.ok()) return ready;
    const ssize_t got = ::recv(sockets_[rank].get(), data, left, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return absl::UnavailableError(absl::StrCat("rank ", rank, " is lost"));
    data += got;
    left -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status FakeGroup::SumUp(const std::vector<float>& own, absl::Span<const Part> parts,
                              std::vector<float>& sums, absl::Time deadline) {
  if (options_.rank != 0) {
    absl::Status status = Send(0, own, deadline);
    return status.ok() ? Receive(0, sums, deadline) : status;
  }
  std::vector<float> all = own;
  std::vector<float> theirs(own.size());
  for (uint32_t rank = 1; rank < options_.ranks; ++rank) {
    absl::Status status = Receive(rank, theirs, deadline);
    if (!status.ok()) return status;
    for (size_t i = 0; i < all.size(); ++i) all[i] += theirs[i];
  }
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    std::vector<float> for_it;
    size_t at = 0;
    for (const Part& part : parts) {
      if (part.rank == rank) {
        for_it.insert(for_it.end(), all.data() + at, all.data() + at + part.count);
      }
      at += part.count;
    }
    if (rank == 0) {
      sums = std::move(for_it);
    } else if (absl::Status status = Send(rank, for_it, deadline); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status FakeGroup::Failed(const absl::Status& why) {
  aborted_ = true;
  absl::MutexLock lock(&mu_);
  if (failed_.ok()) failed_ = why;
  // Not closed: the thread may be using them.
  for (FileDescriptor& socket : sockets_) {
    if (socket.get() >= 0) ::shutdown(socket.get(), SHUT_RDWR);
  }
  return failed_;
}

absl::Status FakeGroup::failed() const {
  absl::MutexLock lock(&mu_);
  return failed_;
}

absl::Status FakeGroup::Gather(const std::vector<float>& own, absl::Span<const Part> parts,
                               std::vector<float>& all, absl::Time deadline) {
  if (options_.rank != 0) {
    absl::Status status = Send(0, own, deadline);
    return status.ok() ? Receive(0, all, deadline) : status;
  }
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    size_t count = 0;
    for (const Part& part : parts) count += part.rank == rank ? part.count : 0;
    std::vector<float> theirs = rank == 0 ? own : std::vector<float>(count);
    if (rank != 0) {
      if (absl::Status status = Receive(rank, theirs, deadline); !status.ok()) return status;
    }
    size_t from = 0;
    size_t to = 0;
    for (const Part& part : parts) {
      if (part.rank == rank) {
        std::copy_n(theirs.begin() + from, part.count, all.begin() + to);
        from += part.count;
      }
      to += part.count;
    }
  }
  for (uint32_t rank = 1; rank < options_.ranks; ++rank) {
    if (absl::Status status = Send(rank, all, deadline); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FakeGroup::Broadcast(std::byte* values, absl::Span<const Part> parts, BucketType type,
                                  absl::Time deadline) {
  if (absl::Status status = failed(); !status.ok()) return status;
  if (type != BucketType::kFloat32) return absl::UnimplementedError("only float32");
  std::vector<Range> reads;
  std::vector<Range> writes;
  for (const Part& part : parts) {
    const size_t bytes = part.count * sizeof(float);
    if (part.rank == options_.rank) reads.push_back({values + part.send * sizeof(float), bytes});
    if (part.rank != options_.rank || part.receive != part.send) {
      writes.push_back({values + part.receive * sizeof(float), bytes});
    }
  }
  auto* const floats = reinterpret_cast<float*>(values);
  const std::vector<Part> kept(parts.begin(), parts.end());
  const auto run = [this, floats, kept, deadline](std::vector<float>& all) {
    std::vector<float> own;
    size_t count = 0;
    for (const Part& part : kept) {
      count += part.count;
      if (part.rank != options_.rank) continue;
      own.insert(own.end(), floats + part.send, floats + part.send + part.count);
    }
    all.resize(count);
    return Gather(own, kept, all, deadline);
  };
  return Launch("broadcasting", reads, writes, run, [floats, kept](const std::vector<float>& all) {
    size_t at = 0;
    for (const Part& part : kept) {
      std::memcpy(floats + part.receive, all.data() + at, part.count * sizeof(float));
      at += part.count;
    }
  });
}

absl::Status FakeGroup::Reduce(std::byte* values, absl::Span<const Part> parts, BucketType type,
                               absl::Time deadline) {
  if (absl::Status status = failed(); !status.ok()) return status;
  if (type != BucketType::kFloat32) return absl::UnimplementedError("only float32");
  std::vector<Range> reads;
  std::vector<Range> writes;
  for (const Part& part : parts) {
    reads.push_back({values + part.send * sizeof(float), part.count * sizeof(float)});
    if (part.rank != options_.rank) continue;
    writes.push_back({values + part.receive * sizeof(float), part.count * sizeof(float)});
  }
  auto* const floats = reinterpret_cast<float*>(values);
  const std::vector<Part> kept(parts.begin(), parts.end());
  const auto run = [this, floats, kept, deadline](std::vector<float>& sums) {
    std::vector<float> own;
    size_t received = 0;
    for (const Part& part : kept) {
      own.insert(own.end(), floats + part.send, floats + part.send + part.count);
      if (part.rank == options_.rank) received += part.count;
    }
    sums.resize(received);
    return SumUp(own, kept, sums, deadline);
  };
  const auto take = [rank = options_.rank, floats, kept](const std::vector<float>& sums) {
    size_t at = 0;
    for (const Part& part : kept) {
      if (part.rank != rank) continue;
      std::memcpy(floats + part.receive, sums.data() + at, part.count * sizeof(float));
      at += part.count;
    }
  };
  return Launch("reducing", reads, writes, run, take);
}

absl::Status FakeGroup::Await(const std::function<absl::StatusOr<bool>()>& done,
                              absl::Time deadline) {
  while (true) {
    if (absl::Status status = failed(); !status.ok()) return status;
    if (aborted_ || (options_.cancelled && options_.cancelled())) {
      return Failed(absl::CancelledError("the fake group was given up"));
    }
    const absl::StatusOr<bool> is_done = done();
    if (!is_done.ok()) return Failed(is_done.status());
    if (*is_done) return failed();
    if (SteadyNow() > deadline) {
      return Failed(absl::DeadlineExceededError("the fake device has not ended its work"));
    }
    absl::SleepFor(absl::Microseconds(50));
  }
}

}  // namespace parley
