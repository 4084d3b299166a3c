#include "client/parameter_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kCacheLine = 64;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

absl::StatusOr<std::byte*> OwnPages(std::byte* where, size_t bytes) {
  void* const data =
      ::mmap(where, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (where != nullptr ? MAP_FIXED : 0), -1, 0);
  if (data != MAP_FAILED) return static_cast<std::byte*>(data);
  return absl::ResourceExhaustedError(absl::StrCat(
      "no ", bytes >> 20, " MiB for parameters: ", absl::ErrnoToStatus(errno, "mmap").message()));
}

}  // namespace

struct ParameterArena::Region {
  std::byte* data = nullptr;
  size_t bytes = 0;
  ~Region() {
    if (data != nullptr) ::munmap(data, bytes);
  }
};

absl::StatusOr<std::unique_ptr<ParameterArena>> ParameterArena::Make(
    const std::vector<TensorSpec>& tensors) {
  std::vector<size_t> begins;
  size_t bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    const size_t unit = ByteCount(tensor) >= kShown ? kPage : kCacheLine;
    bytes = RoundUp(bytes, unit);
    begins.push_back(bytes);
    bytes += RoundUp(ByteCount(tensor), unit);
  }
  std::unique_ptr<ParameterArena> arena(new ParameterArena);
  arena->region_ = std::make_shared<Region>();
  const size_t whole = std::max(RoundUp(bytes, kPage), kPage);
  const absl::StatusOr<std::byte*> data = OwnPages(nullptr, whole);
  if (!data.ok()) return data.status();
  arena->region_->data = *data;
  arena->region_->bytes = whole;
  for (size_t i = 0; i < tensors.size(); ++i) {
    arena->tensors_.emplace_back(*data + begins[i], ByteCount(tensors[i]));
  }
  return arena;
}

absl::Status ParameterArena::MakeOwn(std::byte* where, size_t bytes) {
  return OwnPages(where, RoundUp(bytes, kPage)).status();
}

absl::StatusOr<std::byte*> ParameterArena::Own(size_t tensor, size_t begin, size_t bytes) {
  std::byte* const where = tensors_[tensor].subspan(begin, bytes).data();
  auto shown = shown_.lower_bound(where);
  while (shown != shown_.end() && shown->first < where + bytes) {
    if (absl::Status own = MakeOwn(shown->first, shown->second.bytes); !own.ok()) return own;
    shown = shown_.erase(shown);
  }
  return where;
}

absl::StatusOr<bool> ParameterArena::Show(size_t tensor, size_t begin, const TensorSlice& slice) {
  const size_t bytes = slice.bytes.size();
  if (slice.segment == nullptr || !slice.loan.has_value() || bytes < kShown ||
      slice.bytes.pieces().size() != 1) {
    return false;
  }
  const absl::Span<std::byte> whole = tensors_[tensor];
  std::byte* const where = whole.subspan(begin, bytes).data();
  const auto offset = static_cast<size_t>(slice.bytes.pieces()[0].data() - slice.segment->data());
  // What is behind it on its last page would be shown too: only where nothing of ours is.
  const bool is_last = begin + bytes == whole.size();
  if (offset % kPage != 0 || begin % kPage != 0 || (bytes % kPage != 0 && !is_last)) return false;
  const auto found = shown_.find(where);
  if (found != shown_.end() && found->second.segment == slice.segment &&
      found->second.offset == offset && found->second.bytes == bytes) {
    found->second.loan = *slice.loan;
    return true;
  }
  // What stands there for good has all its pages at once. What moves from step to step
  // (sync.update_ahead) may never be read here, but by a device from where it lies.
  const bool moves = found != shown_.end();
  if (!slice.segment->ShowAt(where, offset, RoundUp(bytes, kPage), /*at_once=*/!moves).ok()) {
    // The system has a limit for what is mapped in pieces. Nothing may be left unmapped.
    if (absl::Status own = MakeOwn(where, bytes); !own.ok()) return own;
    shown_.erase(where);
    return false;
  }
  shown_[where] = {slice.segment, offset, bytes, *slice.loan};
  return true;
}

std::vector<ParameterArena::ShownPart> ParameterArena::ShownParts(size_t tensor, size_t begin,
                                                                  size_t end) const {
  std::vector<ShownPart> parts;
  const absl::Span<std::byte> whole = tensors_[tensor];
  for (auto it = shown_.lower_bound(whole.data() + std::min(begin, whole.size()));
       it != shown_.end() && it->first < whole.data() + std::min(end, whole.size()); ++it) {
    const Shown& shown = it->second;
    parts.push_back({static_cast<size_t>(it->first - whole.data()),
                     {shown.segment->data() + shown.offset, shown.bytes},
                     shown.segment});
  }
  return parts;
}

bool ParameterArena::Stands() const {
  return std::all_of(shown_.begin(), shown_.end(),
                     [](const auto& shown) { return shown.second.loan.Stands(); });
}

absl::Status ParameterArena::Detach() {
  while (!shown_.empty()) {
    const auto it = shown_.begin();
    const size_t whole = RoundUp(it->second.bytes, kPage);
    const absl::StatusOr<std::byte*> copy = OwnPages(nullptr, whole);
    if (!copy.ok()) return copy.status();
    std::memcpy(*copy, it->first, it->second.bytes);
    if (::mremap(*copy, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, it->first) == MAP_FAILED) {
      const absl::Status failed = absl::ErrnoToStatus(errno, "keeping the parameters");
      ::munmap(*copy, whole);
      return failed;
    }
    shown_.erase(it);
  }
  return absl::OkStatus();
}

}  // namespace parley
