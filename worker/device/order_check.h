#ifndef PARLEY_WORKER_DEVICE_ORDER_CHECK_H_
#define PARLEY_WORKER_DEVICE_ORDER_CHECK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/device/device.h"

namespace parley {

// A piece of memory.
struct Range {
  const std::byte* begin = nullptr;
  size_t bytes = 0;

  const std::byte* end() const { return begin + bytes; }
};

// Whether the uses of memory by streams and host are in an order: of each two that touch the same
// bytes, one of which writes, the earlier one must happen before the later one, by the order of a
// stream, by events, or because the host has waited. It keeps a vector clock for each stream and
// the host. Plain state, for FakeDevice; not thread-safe.
class OrderCheck {
 public:
  static constexpr size_t kHost = kStreamCount;
  // How much of each actor's work has happened before something.
  using Clock = std::array<uint64_t, kStreamCount + 1>;

  // Memory that may be used until it is forgotten. `what` is for messages.
  void Add(Range memory, const std::string& what, bool pinned);
  void Remove(const std::byte* begin);
  bool IsPinned(Range memory) {
    const Memory* const found = Find(memory);
    return found != nullptr && found->pinned;
  }
  // Uses of memory that was not added are right, and not looked at.
  void IgnoreOtherMemory() { ignores_other_memory_ = true; }

  // An actor (a stream, or kHost) uses memory. What streams do was asked for by the host, and so
  // happens after what that has done.
  void Use(size_t actor, const std::string& what, const std::vector<Range>& reads,
           const std::vector<Range>& writes);
  // For an event: what has happened where it is recorded.
  Clock Record(size_t stream);
  // An actor goes on only after that.
  void Join(size_t actor, const Clock& clock);

  // Once for each text.
  void Say(std::string violation);
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Past {
    Range range;
    bool writes = false;
    size_t actor = 0;
    uint64_t time = 0;  // of the actor
    std::string what;
  };
  struct Memory {
    Range range;
    std::string what;
    bool pinned = false;
    std::vector<Past> past;
  };

  void UseRange(size_t actor, const std::string& what, Range range, bool writes);
  Memory* Find(Range range);

  std::array<Clock, kStreamCount + 1> clocks_ = {};
  std::map<const std::byte*, Memory> memory_;
  bool ignores_other_memory_ = false;
  std::vector<std::string> violations_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_ORDER_CHECK_H_
