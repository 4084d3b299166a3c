#ifndef PARLEY_CLIENT_REDUCE_GROUP_VALUES_H_
#define PARLEY_CLIENT_REDUCE_GROUP_VALUES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/reduce/reducer.h"
#include "common/shared_memory/memory_segment.h"

namespace parley {

// Where the values lie that one rank of a node group hands round, in a segment of its own: a word
// for each slice, then the slices that are the rank's, one after the other. A function of the list
// of slices (Reducer::Group::values) alone, so that a reader need not believe the writer.
class ValuesLayout {
 public:
  // Of what `rank` owns.
  ValuesLayout(absl::Span<const std::pair<uint64_t, uint32_t>> values, uint32_t rank);

  size_t slices() const { return places_.size(); }
  size_t bytes() const { return bytes_; }  // of the segment
  // Of a slice that is the rank's, and has so many bytes; 0: it is not.
  size_t offset(const Reducer::Values& values) const;

 private:
  std::vector<std::pair<size_t, uint64_t>> places_;  // offset (0: another rank's) and bytes
  size_t bytes_ = 0;
};

// The rank that has them. The training thread's.
class OwnValues {
 public:
  // ResourceExhausted where there is no shared memory.
  static absl::StatusOr<std::unique_ptr<OwnValues>> Make(ValuesLayout layout);

  const std::shared_ptr<MemorySegment>& segment() const { return segment_; }
  // Once for each version; a repetition is nothing. False where nothing was changed.
  bool Share(const Reducer::Values& values, absl::Span<const std::byte> bytes);
  bool Withhold(const Reducer::Values& values);
  // What was shared counts no more.
  void End();

 private:
  OwnValues(ValuesLayout layout, std::shared_ptr<MemorySegment> segment);

  const ValuesLayout layout_;
  const std::shared_ptr<MemorySegment> segment_;
  std::atomic<uint64_t>* const words_;
};

// Another rank's, to be read. The training thread's.
class PeerValues {
 public:
  // Internal where the segment is too small for what that rank has.
  static absl::StatusOr<std::unique_ptr<PeerValues>> Make(
      ValuesLayout layout, std::shared_ptr<const MemorySegment> segment);

  Reducer::Taken Take(const Reducer::Values& values, absl::Span<std::byte> to) const;

 private:
  PeerValues(ValuesLayout layout, std::shared_ptr<const MemorySegment> segment);

  const ValuesLayout layout_;
  const std::shared_ptr<const MemorySegment> segment_;
  const std::atomic<uint64_t>* const words_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REDUCE_GROUP_VALUES_H_
