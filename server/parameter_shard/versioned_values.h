#ifndef PARLEY_SERVER_PARAMETER_SHARD_VERSIONED_VALUES_H_
#define PARLEY_SERVER_PARAMETER_SHARD_VERSIONED_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "server/parameter_shard/buffer.h"

namespace parley {

// The values of a slice as a short list of versions (multi-version concurrency control): the
// newest, and older ones for as long as somebody has them pinned. Owned by a TableSlice, and called
// as that is.
class VersionedValues {
 public:
  explicit VersionedValues(BufferPool* pool) : pool_(pool) {}

  bool set() const { return !versions_.empty(); }
  // Requires set().
  uint64_t newest() const { return versions_.back().last; }
  size_t held() const { return versions_.size(); }

  // The first version.
  void Set(uint64_t version, std::string_view bytes);

  // nullptr where the version is not there (any more).
  PinnedBuffer PinVersion(uint64_t version) const;

  // Makes `version` the newest and returns its values to be changed in place: they are the former
  // newest's, in the same memory if nobody else holds that one, else copied into a recycled buffer.
  Buffer& Update(uint64_t version);

  // Makes `version` the newest with these values. Returns memory of one that nobody needs any more,
  // or nullptr.
  std::shared_ptr<Buffer> Put(uint64_t version, std::shared_ptr<Buffer> values);

  // Makes `version` the newest with the values as they are.
  void Raise(uint64_t version);

 private:
  // The same values served the versions first..last.
  struct Version {
    uint64_t first;
    uint64_t last;
    std::shared_ptr<Buffer> values;
  };

  // Returns the last one's memory.
  std::shared_ptr<Buffer> DropUnpinned();

  BufferPool* const pool_;
  std::deque<Version> versions_;  // ascending; the last is the newest
};

// Makes `buffer` one that may be changed in place: itself if nobody has it pinned, else a copy.
Buffer& Unshare(std::shared_ptr<Buffer>& buffer, BufferPool& pool);

}  // namespace parley

#endif  // PARLEY_SERVER_PARAMETER_SHARD_VERSIONED_VALUES_H_
