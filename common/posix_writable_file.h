#ifndef PARLEY_COMMON_POSIX_WRITABLE_FILE_H_
#define PARLEY_COMMON_POSIX_WRITABLE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/file_system.h"

namespace parley {

// Writes a file in pieces of kPieceBytes. While the next piece is gathered, a thread that the first
// whole one starts writes it past the memory that the system keeps of files (O_DIRECT), where the
// file system can: a checkpoint is read seldom, and memory taken for it is taken from the
// training's data; where such memory is slow to come by, as on virtual machines, it is several
// times faster. Where it cannot, the thread brings each piece to the disk from there, so that
// whoever counts what was appended counts what is written, and Sync has little left to do. What is
// shorter than a piece is written the plain way at Sync or Close, which tell of its errors. Made by
// PosixFileSystem.
class PosixWritableFile final : public WritableFile {
 public:
  static constexpr uint64_t kPieceBytes = 4 << 20;

  // Takes the descriptor. `path` is for messages. direct: false as if the file system could not.
  PosixWritableFile(int fd, std::string path, bool direct = true);
  ~PosixWritableFile() override;

  absl::Status Append(absl::Span<const std::byte> bytes) override;
  absl::Status Sync() override;
  absl::Status Close() override;

 private:
  // Memory of kPieceBytes that begins where a disk's block may (so do its place in the file and its
  // end, which O_DIRECT asks for).
  struct FreePiece {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Piece = std::unique_ptr<std::byte[], FreePiece>;
  static Piece MakePiece();

  absl::Status HandOver();
  // All that was appended is the file system's afterwards, but perhaps not on the disk.
  absl::Status Flush();
  void WritePieces();
  // On the thread, while it has a piece, and on the caller's when it has none.
  absl::Status Write(const std::byte* data, uint64_t size, uint64_t offset);
  absl::Status BringToDisk(uint64_t offset, uint64_t size);  // likewise
  void SetDirect(bool direct);

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stop_ || whole_; }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !whole_; }

  int fd_;
  const std::string path_;
  const bool may_be_direct_;
  bool direct_ = false;  // as Write

  Piece filling_;         // the caller's
  uint64_t filled_ = 0;   // bytes in it
  uint64_t flushed_ = 0;  // of these, written
  uint64_t offset_ = 0;   // of it in the file: a multiple of kPieceBytes

  absl::Mutex mu_;
  bool whole_ ABSL_GUARDED_BY(mu_) = false;  // there is a piece to be written
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);  // of the pieces written so far
  Piece writing_;                             // the thread's while whole_, else the caller's
  uint64_t writing_offset_ = 0;               // likewise
  std::thread thread_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_POSIX_WRITABLE_FILE_H_
