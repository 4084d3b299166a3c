#ifndef PARLEY_COMMON_SHARED_MEMORY_MEMORY_SEGMENT_H_
#define PARLEY_COMMON_SHARED_MEMORY_MEMORY_SEGMENT_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"

namespace parley {

// Memory that processes of one machine have in common: an anonymous file (memfd), sealed so that it
// never shrinks or grows under a reader (who would else end by SIGBUS) and nobody but its maker can
// map it to write. It has no name: it goes with the last process that has it, however that ends.
// Thread-safe beyond what its bytes are.
class MemorySegment {
 public:
  // A new one, zeroed, of at least so many bytes. ResourceExhausted where the system has none,
  // FailedPrecondition where it cannot seal it.
  static absl::StatusOr<std::shared_ptr<MemorySegment>> Create(size_t bytes);

  // One that a peer has made and sent, to be read. InvalidArgument where it is none that is safe to
  // read, as one that lacks a seal.
  static absl::StatusOr<std::shared_ptr<const MemorySegment>> OfPeer(const FileDescriptor& fd);

  // A new one, zeroed, at the address of `former`, which leaves it: whoever has been shown that one
  // keeps it as it is now. Nobody may write there meanwhile. On an error `former` stays.
  static absl::StatusOr<std::shared_ptr<MemorySegment>> InPlaceOf(MemorySegment& former);

  ~MemorySegment();
  MemorySegment(const MemorySegment&) = delete;
  MemorySegment& operator=(const MemorySegment&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Lets these bytes of it, to be read, stand at `where` too, in the place of what is there; the
  // caller unmaps them. All at the beginning of a page. After an error nothing may be there.
  // OutOfRange: it has not so many. at_once: all its pages, which else come one by one as they are
  // read.
  absl::Status ShowAt(std::byte* where, size_t offset, size_t bytes, bool at_once = true) const;

  // To be sent to a peer.
  const FileDescriptor& fd() const { return fd_; }

 private:
  MemorySegment(FileDescriptor fd, std::byte* data, size_t bytes)
      : fd_(std::move(fd)), data_(data), bytes_(bytes) {}

  const FileDescriptor fd_;
  std::byte* const data_;
  const size_t bytes_;
  bool displaced_ = false;  // what is mapped at data_ is another one
};

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_MEMORY_SEGMENT_H_
