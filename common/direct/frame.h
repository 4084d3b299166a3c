#ifndef PARLEY_COMMON_DIRECT_FRAME_H_
#define PARLEY_COMMON_DIRECT_FRAME_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/direct/receive_buffers.h"
#include "common/tensor_slice.h"
#include "proto/direct.pb.h"

namespace parley {

// What goes over a direct connection (proto/direct.proto) one after the other: a frame, and the
// tensors behind it. Pure; the socket is DirectConnection's.

inline constexpr size_t kMostFrameBytes = 64 << 20;
inline constexpr size_t kMostTensorBytes = 256 << 20;  // behind one frame
// Of one frame. A message of ours has as many tensors as make up a bucket, 32 MiB at most: some
// thousands in the largest models.
inline constexpr size_t kMostSlices = 1 << 16;

// What a reader takes at most of one frame: before it has memory for more than this.
struct FrameLimits {
  size_t frame_bytes = kMostFrameBytes;
  size_t tensor_bytes = kMostTensorBytes;
  size_t slices = kMostSlices;
};
// Until the two have greeted each other: a hello and its answer are a few bytes.
inline constexpr FrameLimits kGreetingLimits = {4 << 10, 0, 0};

// A frame as it came. `what.slices` is empty: `slices` has them, with the owner of their bytes,
// each at the beginning of an aligned piece.
struct ReceivedFrame {
  DirectFrame what;
  std::vector<TensorSlice> slices;
};

// A frame that is being sent, from the tensors' own memory. One thread at a time.
class OutgoingFrame {
 public:
  // slices: need owners, or outlive this.
  OutgoingFrame(DirectFrame frame, std::vector<TensorSlice> slices);

  OutgoingFrame(const OutgoingFrame&) = delete;
  OutgoingFrame& operator=(const OutgoingFrame&) = delete;

  // What a frame's tensors take behind it.
  static size_t BytesBehind(absl::Span<const TensorSlice> slices);

  size_t bytes_left() const { return bytes_left_; }
  // The next of what is left; sets at most room.size() of them and says how many. Valid until
  // Sent.
  size_t Parts(absl::Span<iovec> room) const;
  // So many bytes of it have gone.
  void Sent(size_t bytes);

 private:
  std::string head_;  // the 16 bytes and the frame
  std::vector<TensorSlice> slices_;
  std::vector<iovec> parts_;
  size_t next_ = 0;  // of parts_
  size_t bytes_left_ = 0;
};

// Makes frames of bytes in any portions. One thread at a time.
class FrameReader {
 public:
  explicit FrameReader(std::shared_ptr<ReceiveBuffers> buffers, FrameLimits limits = {})
      : buffers_(std::move(buffers)), limits_(limits) {}

  // For frames that begin from now on.
  void SetLimits(FrameLimits limits) { limits_ = limits; }

  // Where the next bytes should be received: what is missing of a frame's tensors. Empty: not
  // known yet, then Take is for them.
  absl::Span<std::byte> Room() const;
  // So many bytes have been put into Room. Whole frames are appended.
  void Filled(size_t bytes, std::vector<ReceivedFrame>& whole);

  // Reads bytes that lie elsewhere, after Room was filled. InvalidArgument: they are no frames, and
  // nothing more can be read.
  absl::Status Take(absl::Span<const std::byte> bytes, std::vector<ReceivedFrame>& whole);

 private:
  absl::Status Begin();  // when the 16 bytes are there
  absl::Status Parse();  // when the frame is there
  void End(std::vector<ReceivedFrame>& whole);

  const std::shared_ptr<ReceiveBuffers> buffers_;
  FrameLimits limits_;
  std::string head_;        // the 16 bytes, then the frame
  size_t frame_bytes_ = 0;  // 0: of which nothing is known yet
  size_t tensor_bytes_ = 0;
  bool parsed_ = false;  // tensors come
  ReceivedFrame frame_;
  std::shared_ptr<std::byte> tensors_;
  size_t received_ = 0;  // of them
};

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_FRAME_H_
