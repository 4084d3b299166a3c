#include "common/direct/frame.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr size_t kPrefixBytes = 16;
constexpr uint32_t kMagic = 0x31594c50;
constexpr size_t kPiece = ReceiveBuffers::kAlignment;
constexpr char kZeros[kPiece] = {};

// Both ends are as x86 and ARM are; so are the tensors.
static_assert(std::endian::native == std::endian::little);

struct Prefix {
  uint32_t magic = kMagic;
  uint32_t frame_bytes = 0;
  uint64_t tensor_bytes = 0;
};
static_assert(sizeof(Prefix) == kPrefixBytes);

size_t Padded(size_t bytes) { return (bytes + kPiece - 1) / kPiece * kPiece; }

// Besides its slices: some more than there are, for those of later releases.
constexpr size_t kMostOtherFields = 16;

// Whether a message has at most so many fields. Two bytes are a whole field, and a hundred times as
// much in memory when they have been parsed: so they are counted first.
bool HasAtMost(size_t fields, const std::string& message) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(message.data()),
                                                static_cast<int>(message.size()));
  for (size_t count = 0;; ++count) {
    const uint32_t tag = stream.ReadTag();
    if (tag == 0) return stream.ConsumedEntireMessage();
    if (count == fields || !WireFormatLite::SkipField(&stream, tag)) return false;
  }
}

iovec Part(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

size_t OutgoingFrame::BytesBehind(absl::Span<const TensorSlice> slices) {
  size_t bytes = 0;
  for (const TensorSlice& slice : slices) bytes += Padded(slice.bytes.size());
  return bytes;
}

OutgoingFrame::OutgoingFrame(DirectFrame frame, std::vector<TensorSlice> slices)
    : slices_(std::move(slices)) {
  for (const TensorSlice& slice : slices_) {
    DirectSlice& described = *frame.add_slices();
    described.set_slice(slice.slice);
    described.set_dtype(slice.dtype);
    described.set_bytes(slice.bytes.size());
    if (slice.packed) described.set_nonzero(slice.nonzero);
  }
  head_.resize(kPrefixBytes);
  frame.AppendToString(&head_);
  const size_t tensor_bytes = BytesBehind(slices_);
  const Prefix prefix = {kMagic, static_cast<uint32_t>(head_.size() - kPrefixBytes), tensor_bytes};
  std::memcpy(head_.data(), &prefix, sizeof(prefix));
  bytes_left_ = head_.size() + tensor_bytes;

  parts_.push_back(Part(head_.data(), head_.size()));
  for (const TensorSlice& slice : slices_) {
    for (const TensorBytes::Piece& piece : slice.bytes.pieces()) {
      parts_.push_back(Part(piece.data(), piece.size()));
    }
    const size_t missing = Padded(slice.bytes.size()) - slice.bytes.size();
    if (missing > 0) parts_.push_back(Part(kZeros, missing));
  }
}

size_t OutgoingFrame::Parts(absl::Span<iovec> room) const {
  const size_t count = std::min(room.size(), parts_.size() - next_);
  std::copy_n(parts_.begin() + static_cast<ptrdiff_t>(next_), count, room.begin());
  return count;
}

void OutgoingFrame::Sent(size_t bytes) {
  bytes_left_ -= bytes;
  for (; bytes > 0 && next_ < parts_.size(); ++next_) {
    iovec& part = parts_[next_];
    if (bytes < part.iov_len) {
      part.iov_base = static_cast<char*>(part.iov_base) + bytes;
      part.iov_len -= bytes;
      return;
    }
    bytes -= part.iov_len;
  }
}

absl::Span<std::byte> FrameReader::Room() const {
  if (!parsed_) return {};
  return {tensors_.get() + received_, tensor_bytes_ - received_};
}

void FrameReader::Filled(size_t bytes, std::vector<ReceivedFrame>& whole) {
  received_ += bytes;
  if (parsed_ && received_ == tensor_bytes_) End(whole);
}

absl::Status FrameReader::Take(absl::Span<const std::byte> bytes,
                               std::vector<ReceivedFrame>& whole) {
  while (!bytes.empty()) {
    if (parsed_) {
      const absl::Span<std::byte> room = Room();
      const size_t count = std::min(bytes.size(), room.size());
      std::memcpy(room.data(), bytes.data(), count);
      bytes.remove_prefix(count);
      Filled(count, whole);
      continue;
    }
    const size_t wanted = (frame_bytes_ == 0 ? kPrefixBytes : frame_bytes_) - head_.size();
    const size_t count = std::min(bytes.size(), wanted);
    head_.append(reinterpret_cast<const char*>(bytes.data()), count);
    bytes.remove_prefix(count);
    if (count < wanted) break;
    if (absl::Status status = frame_bytes_ == 0 ? Begin() : Parse(); !status.ok()) return status;
    if (parsed_ && tensor_bytes_ == 0) End(whole);
  }
  return absl::OkStatus();
}

absl::Status FrameReader::Begin() {
  Prefix prefix;
  std::memcpy(&prefix, head_.data(), sizeof(prefix));
  if (prefix.magic != kMagic || prefix.frame_bytes == 0 ||
      prefix.frame_bytes > limits_.frame_bytes || prefix.tensor_bytes > limits_.tensor_bytes ||
      prefix.tensor_bytes % kPiece != 0) {
    return absl::InvalidArgumentError("not the beginning of a direct frame");
  }
  frame_bytes_ = prefix.frame_bytes;
  tensor_bytes_ = prefix.tensor_bytes;
  head_.clear();
  return absl::OkStatus();
}

absl::Status FrameReader::Parse() {
  if (!HasAtMost(limits_.slices + kMostOtherFields, head_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a DirectFrame of at most ", limits_.slices, " slices"));
  }
  // One that says nothing would be written without a byte, which is no frame.
  if (!frame_.what.ParseFromString(head_) || frame_.what.ByteSizeLong() == 0) {
    return absl::InvalidArgumentError("not a DirectFrame");
  }
  head_.clear();
  size_t left = tensor_bytes_;
  for (const DirectSlice& described : frame_.what.slices()) {
    if (described.bytes() > left) break;
    left -= Padded(described.bytes());  // not more than left, which is whole pieces
    TensorSlice& slice = frame_.slices.emplace_back();
    slice.slice = described.slice();
    slice.dtype = described.dtype();
    slice.nonzero = described.nonzero();
    slice.packed = !slice.nonzero.empty();
  }
  if (left != 0 || static_cast<int>(frame_.slices.size()) != frame_.what.slices_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a direct frame whose ", frame_.what.slices_size(), " slices are not the ",
                     tensor_bytes_, " bytes behind it"));
  }
  if (tensor_bytes_ > 0) tensors_ = buffers_->Take(tensor_bytes_);
  const std::byte* at = tensors_.get();
  for (size_t i = 0; i < frame_.slices.size(); ++i) {
    TensorSlice& slice = frame_.slices[i];
    const size_t bytes = frame_.what.slices(static_cast<int>(i)).bytes();
    slice.bytes = TensorBytes::Piece(at, bytes);
    slice.owner = tensors_;
    at += Padded(bytes);
  }
  frame_.what.clear_slices();
  parsed_ = true;
  return absl::OkStatus();
}

void FrameReader::End(std::vector<ReceivedFrame>& whole) {
  whole.push_back(std::exchange(frame_, ReceivedFrame()));
  tensors_.reset();
  parsed_ = false;
  frame_bytes_ = tensor_bytes_ = received_ = 0;
}

}  // namespace parley
