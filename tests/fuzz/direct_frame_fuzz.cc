// Any bytes of a peer on a direct connection: frames whose tensors lie within what was received, or
// the connection is over. The first byte of an input says in which portions they come. What is read
// is written again, and read as the same.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/direct/frame.h"
#include "common/direct/receive_buffers.h"
#include "tests/fuzz/require.h"

namespace parley {
namespace {

// Whether they were all frames.
bool ReadAll(absl::Span<const std::byte> bytes, size_t portion, std::vector<ReceivedFrame>& whole) {
  FrameReader reader(std::make_shared<ReceiveBuffers>(1 << 20));
  while (!bytes.empty()) {
    absl::Span<const std::byte> now = bytes.subspan(0, portion);
    bytes.remove_prefix(now.size());
    const absl::Span<std::byte> room = reader.Room();
    const size_t filled = std::min(room.size(), now.size());
    if (filled > 0) {
      std::memcpy(room.data(), now.data(), filled);
      reader.Filled(filled, whole);
      now.remove_prefix(filled);
    }
    if (!reader.Take(now, whole).ok()) return false;
  }
  return true;
}

std::string BytesOf(const ReceivedFrame& frame) {
  OutgoingFrame outgoing(frame.what, frame.slices);
  std::string bytes;
  while (outgoing.bytes_left() > 0) {
    std::array<iovec, 5> parts;
    const size_t count = outgoing.Parts(absl::MakeSpan(parts));
    Require(count > 0);
    size_t sent = 0;
    for (size_t i = 0; i < count; ++i) {
      bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
      sent += parts[i].iov_len;
    }
    outgoing.Sent(sent);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::vector<ReceivedFrame> whole;
  (void)ReadAll({reinterpret_cast<const std::byte*>(data + 1), size - 1}, 1 + data[0], whole);
  for (const ReceivedFrame& frame : whole) {
    const std::string bytes = BytesOf(frame);  // reads all of its tensors
    std::vector<ReceivedFrame> again;
    Require(ReadAll({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, 100, again));
    Require(again.size() == 1 && again[0].slices.size() == frame.slices.size());
    Require(BytesOf(again[0]) == bytes);
  }
  return 0;
}

}  // namespace parley
