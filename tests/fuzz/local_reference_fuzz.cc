// Any messages of a peer on the same machine, one after the other, to a process that serves
// references: values stand where their blocks are, or the connection is over. The first byte of an
// input says whether the peer has introduced itself; then come messages, each after two bytes for
// its length and one that says whether a segment comes along.
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "client/reference/local_reference_guest.h"
#include "client/reference/reference_host.h"
#include "common/shared_memory/local_socket.h"
#include "common/shared_memory/memory_segment.h"
#include "proto/local_reference.pb.h"
#include "tests/fuzz/require.h"

namespace parley {
namespace {

constexpr char kAddress[] = "host:1";

std::shared_ptr<ReferenceHost> MakeHost() {
  ReferenceHost::Options options;
  options.space.job = "job";
  options.space.incarnation = 1;
  options.space.address = kAddress;
  options.space.draw_session = [] { return uint64_t{2}; };
  options.send = [](const ToOwner&, absl::Duration, const Done<FromOwner>&) {};
  options.begin = [](const ReferenceSpace::Run&) {};
  auto host = std::make_shared<ReferenceHost>(std::move(options));
  host->With([](ReferenceSpace& space, absl::Time now, Replies& replies) {
    OpenSessionRequest open;
    open.set_job("job");
    open.set_holder(3);
    open.set_holder_address("host:2");
    Require(space.OnOpen(open, now, replies).ok());
  });
  return host;
}

void Visit(std::string input, const MemorySegment& segment) {
  const std::shared_ptr<ReferenceHost> host = MakeHost();
  int ends[2];
  Require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const LocalSocket peer{FileDescriptor(ends[1])};
  LocalReferenceGuest guest(kAddress, host, std::make_unique<LocalSocket>(FileDescriptor(ends[0])));
  const bool greets = (input[0] & 1) == 0;
  if (greets) {
    LocalCallRequest hello;
    hello.set_call(1);
    hello.set_hello(kAddress);
    Require(guest.Handle({hello.SerializeAsString(), {}}).ok());
  }
  int messages = 0;
  for (size_t at = 1; at + 3 <= input.size() && messages < 20; ++messages) {
    const size_t size = static_cast<uint8_t>(input[at]) + 256 * static_cast<uint8_t>(input[at + 1]);
    LocalMessage message;
    if ((input[at + 2] & 1) != 0) message.files.emplace_back(::dup(segment.fd().get()));
    message.bytes = input.substr(at + 3, size);
    at += 3 + message.bytes.size();
    if (!guest.Handle(std::move(message)).ok()) break;
  }
  guest.Close();
  host->End();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const auto& segment = *new auto(*MemorySegment::Create(4096));
  Visit(std::string(reinterpret_cast<const char*>(data), size), *segment);
  return 0;
}

}  // namespace parley
