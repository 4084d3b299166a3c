#include "client/parley/doctor/shared_memory_check.h"

#include <sys/un.h>

#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/parley/units.h"
#include "common/clock/steady_now.h"
#include "common/seed.h"
#include "common/shared_memory/local_socket.h"
#include "common/shared_memory/memory_segment.h"

namespace parley {
namespace {

constexpr size_t kSegmentBytes = 1 << 20;
constexpr absl::Duration kAnswer = absl::Seconds(5);
// The longest prefix and port of a local name (docs/shared_memory.md).
constexpr std::string_view kLongestPrefix = "parley-references ";
constexpr std::string_view kLongestPort = ":65535";
constexpr char kSlower[] =
    "; without it processes of this machine use gRPC for tensors, three to five times slower";

absl::Status TrySegment() {
  const auto segment = MemorySegment::Create(kSegmentBytes);
  if (!segment.ok()) return segment.status();
  (*segment)->data()[0] = std::byte{1};
  const auto seen = MemorySegment::OfPeer((*segment)->fd());
  if (!seen.ok()) return seen.status();
  return (*seen)->data()[0] == std::byte{1}
             ? absl::OkStatus()
             : absl::InternalError("what is written to a segment is not seen through another map");
}

absl::Status TrySocket() {
  const std::string name = absl::StrCat("parley-doctor ", absl::Hex(RandomIncarnation()));
  const auto listener = LocalListener::Listen(name);
  if (!listener.ok()) return listener.status();
  const auto segment = MemorySegment::Create(kSegmentBytes);
  if (!segment.ok()) return segment.status();
  const auto near = LocalSocket::Connect(name);
  if (!near.ok()) return near.status();
  // It has connected, so there is one to be had at once.
  const auto far = (*listener)->Accept();
  if (!far.ok()) return far.status();
  const int fd = (*segment)->fd().get();
  const std::string longest(LocalSocket::kMostBytes, 'd');
  if (absl::Status sent = (*near)->Send(longest, {&fd, 1}); !sent.ok()) return sent;
  const auto message = (*far)->Receive(SteadyNow() + kAnswer);
  if (!message.ok()) return message.status();
  return message->bytes == longest && message->files.size() == 1
             ? absl::OkStatus()
             : absl::InternalError("a local message has come otherwise than it was sent");
}

Finding CheckSegment(const absl::Status& segment) {
  constexpr char kWhat[] = "shared memory";
  if (segment.ok()) return Fine(kWhat, "a sealed segment (memfd) can be made and seen");
  return Warning(
      kWhat, std::string(segment.message()),
      absl::StrCat("memory is there (free -h)? A container's seccomp profile must let "
                   "memfd_create and fcntl(F_ADD_SEALS) pass, the kernel be 5.1 or later "
                   "(uname -r)",
                   kSlower));
}

Finding CheckSocket(const SharedMemoryFacts& facts) {
  constexpr char kWhat[] = "local socket";
  const std::string buffer =
      facts.socket_buffer ? absl::StrCat("net.core.wmem_max ", BytesText(*facts.socket_buffer))
                          : std::string("net.core.wmem_max not told");
  if (facts.socket.ok()) {
    return Fine(kWhat, absl::StrCat("the longest message with a file went over it; ", buffer));
  }
  if (facts.socket_buffer && *facts.socket_buffer < 2 * LocalSocket::kMostBytes) {
    return Warning(kWhat, absl::StrCat(facts.socket.message(), "; ", buffer),
                   absl::StrCat("sysctl -w net.core.wmem_max=", 4 << 20, " as root", kSlower));
  }
  return Warning(
      kWhat, absl::StrCat(facts.socket.message(), "; ", buffer),
      absl::StrCat("a security module or a sandbox must let AF_UNIX sockets pass", kSlower));
}

Finding CheckName(const SharedMemoryFacts& facts, const std::string& host) {
  constexpr char kWhat[] = "local name";
  const size_t size = kLongestPrefix.size() + host.size() + kLongestPort.size();
  const std::string found =
      absl::StrCat("up to ", size, " of ", facts.longest_name, " bytes, with host ", host);
  if (size <= facts.longest_name) return Fine(kWhat, found);
  return Warning(
      kWhat, found,
      absl::StrCat("--listen with the machine's numeric address or a shorter name", kSlower));
}

}  // namespace

SharedMemoryFacts LookAtSharedMemory(const SystemFiles& files) {
  SharedMemoryFacts facts;
  facts.segment = TrySegment();
  facts.socket = TrySocket();
  facts.socket_buffer = files.Number("/proc/sys/net/core/wmem_max");
  facts.longest_name = sizeof(sockaddr_un::sun_path) - 1;  // its first byte is 0
  return facts;
}

Findings CheckSharedMemory(const SharedMemoryFacts& facts, const std::string& host) {
  return {CheckSegment(facts.segment), CheckSocket(facts), CheckName(facts, host)};
}

}  // namespace parley
