#include "common/shared_memory/local_slices.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// A peer shows no more segments than a model of some TiB has.
constexpr size_t kMostSegments = 4096;

static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free,
              "processes have counts in common");

bool IsWithin(uint64_t offset, uint64_t bytes, const MemorySegment& segment) {
  return offset <= segment.bytes() && bytes <= segment.bytes() - offset;
}

}  // namespace

std::string LocalName(const std::string& shard_address) {
  return absl::StrCat("parley-shard ", shard_address);
}

std::optional<SegmentHeap::Place> ShowSlice(const TensorSlice& slice, const SegmentHeap& heap,
                                            LocalSlice& shown) {
  if (!slice.loan.has_value() || slice.packed || slice.bytes.pieces().size() != 1) {
    return std::nullopt;
  }
  const TensorBytes::Piece bytes = slice.bytes.pieces().front();
  std::optional<SegmentHeap::Place> place = heap.Find(bytes.data(), bytes.size());
  if (!place.has_value()) return std::nullopt;
  // The count lies in the same segment.
  const auto* const count = reinterpret_cast<const std::byte*>(slice.loan->count);
  const auto* const begin = place->memory->data();
  if (count < begin || count + sizeof(uint64_t) > begin + place->memory->bytes()) {
    return std::nullopt;
  }
  shown.set_slice(slice.slice);
  shown.set_dtype(slice.dtype);
  shown.set_segment(place->segment);
  shown.set_offset(place->offset);
  shown.set_bytes(bytes.size());
  shown.set_count_offset(static_cast<uint64_t>(count - begin));
  shown.set_lent_at(slice.loan->lent_at);
  if (!slice.nonzero.empty()) shown.set_nonzero(slice.nonzero);
  return place;
}

absl::Status LearnSegments(const google::protobuf::RepeatedField<uint32_t>& numbers,
                           std::vector<FileDescriptor> files, PeerSegments& segments) {
  if (static_cast<size_t>(numbers.size()) != files.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.size(), " files came for ", numbers.size(), " segments"));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const uint32_t number = numbers[static_cast<int>(i)];
    if (segments.size() >= kMostSegments || segments.contains(number)) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment ", number, " is shown again, or is one too many"));
    }
    absl::StatusOr<std::shared_ptr<const MemorySegment>> segment = MemorySegment::OfPeer(files[i]);
    if (!segment.ok()) return segment.status();
    segments[number] = *std::move(segment);
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorSlice> SeenSlice(const LocalSlice& shown,
                                      const std::shared_ptr<const MemorySegment>& segment) {
  if (segment == nullptr || !IsWithin(shown.offset(), shown.bytes(), *segment) ||
      !IsWithin(shown.count_offset(), sizeof(uint64_t), *segment) ||
      shown.count_offset() % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("slice ", shown.slice(),
                                                   " is shown where no memory is: segment ",
                                                   shown.segment(), ", byte ", shown.offset()));
  }
  TensorSlice slice;
  slice.slice = shown.slice();
  slice.dtype = shown.dtype();
  slice.bytes = TensorBytes::Piece(segment->data() + shown.offset(), shown.bytes());
  slice.owner = segment;
  slice.segment = segment;
  slice.nonzero = shown.nonzero();
  slice.loan =
      Loan{reinterpret_cast<const std::atomic<uint64_t>*>(segment->data() + shown.count_offset()),
           shown.lent_at()};
  return slice;
}

}  // namespace parley
