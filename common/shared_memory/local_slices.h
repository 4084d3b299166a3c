#ifndef PARLEY_COMMON_SHARED_MEMORY_LOCAL_SLICES_H_
#define PARLEY_COMMON_SHARED_MEMORY_LOCAL_SLICES_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/shared_memory/segment_heap.h"
#include "common/tensor_slice.h"
#include "proto/local_link.pb.h"

namespace parley {

// The local name (LocalListener) of the shard that serves this host:port.
std::string LocalName(const std::string& shard_address);

// Sets `shown` to where the slice lies. nullopt where it lies not in one piece in the heap, or is
// not lent.
std::optional<SegmentHeap::Place> ShowSlice(const TensorSlice& slice, const SegmentHeap& heap,
                                            LocalSlice& shown);

// A peer's segments by their numbers.
using PeerSegments = std::map<uint32_t, std::shared_ptr<const MemorySegment>>;

// Adds those whose files came with a message. InvalidArgument where numbers and files do not fit,
// are new to nobody, or are no memory that is safe to read.
absl::Status LearnSegments(const google::protobuf::RepeatedField<uint32_t>& numbers,
                           std::vector<FileDescriptor> files, PeerSegments& segments);

// The slice that a peer shows, with the segment as owner. InvalidArgument where it lies not within
// it, whatever the numbers are. segment: nullptr where there is none of this number.
absl::StatusOr<TensorSlice> SeenSlice(const LocalSlice& shown,
                                      const std::shared_ptr<const MemorySegment>& segment);

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_LOCAL_SLICES_H_
