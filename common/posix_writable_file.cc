#include "common/posix_writable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/errno_status.h"

namespace parley {

PosixWritableFile::PosixWritableFile(int fd, std::string path, bool direct)
    : fd_(fd), path_(std::move(path)), may_be_direct_(direct) {}

PosixWritableFile::~PosixWritableFile() {
  if (thread_.joinable()) {
    {
      absl::MutexLock lock(&mu_);
      stop_ = true;
    }
    thread_.join();
  }
  if (fd_ >= 0) ::close(fd_);
}

absl::Status PosixWritableFile::Append(absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filling_ == nullptr) filling_ = MakePiece();
    const absl::Span<const std::byte> part =
        bytes.first(std::min<uint64_t>(bytes.size(), kPieceBytes - filled_));
    std::memcpy(filling_.get() + filled_, part.data(), part.size());
    filled_ += part.size();
    bytes.remove_prefix(part.size());
    if (filled_ < kPieceBytes) continue;
    if (absl::Status status = HandOver(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PosixWritableFile::Sync() {
  if (absl::Status status = Flush(); !status.ok()) return status;
  return ::fsync(fd_) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "cannot sync", path_);
}

absl::Status PosixWritableFile::Close() {
  absl::Status status = Flush();
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, "cannot close", path_);
  return status;
}

PosixWritableFile::Piece PosixWritableFile::MakePiece() {
  constexpr size_t kLargestBlock = 4096;
  void* const memory = std::aligned_alloc(kLargestBlock, kPieceBytes);
  if (memory == nullptr) throw std::bad_alloc();
  return Piece(static_cast<std::byte*>(memory));
}

absl::Status PosixWritableFile::HandOver() {
  if (!thread_.joinable()) {
    SetDirect(may_be_direct_);
    thread_ = std::thread([this] { WritePieces(); });
  }
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &PosixWritableFile::IsIdle));
  if (!status_.ok()) return status_;
  std::swap(filling_, writing_);
  writing_offset_ = offset_;
  whole_ = true;
  offset_ += kPieceBytes;
  filled_ = flushed_ = 0;
  return absl::OkStatus();
}

absl::Status PosixWritableFile::Flush() {
  {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &PosixWritableFile::IsIdle));
    if (!status_.ok()) return status_;
  }
  if (flushed_ == filled_) return absl::OkStatus();
  SetDirect(false);
  // It stays in the buffer too: what is appended to it later is written with it, so that each piece
  // begins where the disk takes it directly.
  absl::Status status = Write(filling_.get(), filled_, offset_);
  if (status.ok()) flushed_ = filled_;
  return status;
}

void PosixWritableFile::WritePieces() {
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &PosixWritableFile::HasWork));
      if (!whole_) return;
    }
    absl::Status status = Write(writing_.get(), kPieceBytes, writing_offset_);
    if (status.ok() && !direct_) status = BringToDisk(writing_offset_, kPieceBytes);
    absl::MutexLock lock(&mu_);
    status_.Update(status);
    whole_ = false;
  }
}

absl::Status PosixWritableFile::Write(const std::byte* data, uint64_t size, uint64_t offset) {
  while (size > 0) {
    const ssize_t written = ::pwrite(fd_, data, size, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      if (error == EINVAL && direct_) {
        SetDirect(false);
        if (!direct_) continue;
      }
      return ErrnoStatus(error, "cannot write", path_);
    }
    data += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status PosixWritableFile::BringToDisk(uint64_t offset, uint64_t size) {
  // No promise: Sync makes that. But its errors may be told here, and not once more then.
  if (::sync_file_range(
          fd_, static_cast<off_t>(offset), static_cast<off_t>(size),
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0) {
    return absl::OkStatus();
  }
  // A file system that knows nothing of it.
  if (errno == EINVAL || errno == ENOSYS || errno == ESPIPE) return absl::OkStatus();
  return ErrnoStatus(errno, "cannot write", path_);
}

void PosixWritableFile::SetDirect(bool direct) {
  if (direct_ == direct) return;
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0) return;
  if (::fcntl(fd_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0) direct_ = direct;
}

}  // namespace parley
