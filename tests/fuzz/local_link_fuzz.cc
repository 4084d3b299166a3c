// Any messages of a worker on the same machine, one after the other, to a shard's door: what they
// name is read where it lies, or refused. (What a shard may say to a worker: local_shard_fuzz.) The
// first byte of an input says whether the peer has introduced itself; then come messages, each
// after two bytes for its length and one that says whether a segment comes along.
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock/steady_now.h"
#include "common/shared_memory/local_socket.h"
#include "common/shared_memory/segment_heap.h"
#include "server/parameter_shard/local_guest.h"
#include "server/parameter_shard/shard_fixture.h"
#include "tests/fuzz/require.h"

namespace parley {
namespace {

constexpr size_t kElements = 5000;  // five blocks of zeros, as LocalSlice.nonzero counts them
constexpr char kAddress[] = "host:1";

struct Message {
  std::string bytes;
  bool has_file = false;
};

std::vector<Message> Split(const std::string& input) {
  std::vector<Message> messages;
  for (size_t at = 0; at + 3 <= input.size() && messages.size() < 20;) {
    const size_t size = static_cast<uint8_t>(input[at]) + 256 * static_cast<uint8_t>(input[at + 1]);
    Message message;
    message.has_file = (input[at + 2] & 1) != 0;
    message.bytes = input.substr(at + 3, size);
    at += 3 + message.bytes.size();
    messages.push_back(std::move(message));
  }
  return messages;
}

LocalMessage Carried(const Message& message, const MemorySegment& segment) {
  LocalMessage carried;
  carried.bytes = message.bytes;
  if (message.has_file) carried.files.emplace_back(::dup(segment.fd().get()));
  return carried;
}

void Visit(const std::vector<Message>& messages, bool greets, const MemorySegment& segment) {
  SegmentHeap values(1 << 20);
  LockedShard shard(testing::SummingJob(), {}, {nullptr, &values});
  const ClusterView view = testing::MakeView({.tensors = {{"w", kElements}}, .workers = 1});
  shard.Start(0);
  Require(shard.SetView(view, SteadyNow()).ok());
  const std::string zeros = testing::BytesOf(testing::Floats(kElements));
  Require(shard.StartSlice(0, {.values = zeros, .state = {}}, SteadyNow()).ok());
  int ends[2];
  Require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const LocalSocket peer{FileDescriptor(ends[1])};
  const auto guest =
      std::make_shared<LocalGuest>(LocalGuest::Options{kAddress, &shard, &values, nullptr},
                                   std::make_unique<LocalSocket>(FileDescriptor(ends[0])));
  if (greets) {
    LocalRequest hello;
    hello.set_call(1);
    hello.mutable_hello()->set_address(kAddress);
    Require(guest->Handle({hello.SerializeAsString(), {}}).ok());
  }
  for (const Message& message : messages) {
    if (!guest->Handle(Carried(message, segment)).ok()) break;
  }
  guest->Close();
  shard.Stop();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const auto& segment = *new auto(*MemorySegment::Create(32 << 10));
  const std::vector<Message> messages =
      Split(std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  Visit(messages, (data[0] & 1) == 0, *segment);
  return 0;
}

}  // namespace parley
