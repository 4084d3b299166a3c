#include "common/shared_memory/memory_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

namespace parley {
namespace {

constexpr size_t kPage = 4096;

// Without which memory is not safe to read: it could end under its reader (SIGBUS), or whoever was
// shown it could write there. A kernel before Linux 5.1, as of Enterprise Linux 8, does not know
// the last one: that nobody writes what is shown rests there on those who are shown it, processes
// of the same user. All processes of a machine have one kernel.
int Seals() {
  static const int seals = [] {
    constexpr int kEver = F_SEAL_SHRINK | F_SEAL_GROW;
    const FileDescriptor probe(::memfd_create("parley", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const bool knows = probe.valid() && ::fcntl(probe.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
    return knows ? kEver | F_SEAL_FUTURE_WRITE : kEver;
  }();
  return seals;
}

absl::Status NoMemory(size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("no ", bytes >> 20, " MiB of shared memory: ",
                                                   absl::ErrnoToStatus(errno, "memfd").message()));
}

// A memfd of so many bytes, all zero. As with all memory, the system gives a page when it is
// touched.
absl::StatusOr<FileDescriptor> MakeFile(size_t bytes) {
  FileDescriptor fd(::memfd_create("parley", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return NoMemory(bytes);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return NoMemory(bytes);
  return fd;
}

absl::StatusOr<std::byte*> Map(const FileDescriptor& fd, size_t bytes, int protection) {
  void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return NoMemory(bytes);
  return static_cast<std::byte*>(data);
}

// After it is mapped to be written.
absl::Status Seal(const FileDescriptor& fd) {
  if (::fcntl(fd.get(), F_ADD_SEALS, Seals() | F_SEAL_SEAL) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("shared memory cannot be sealed: ",
                                                    absl::ErrnoToStatus(errno, "fcntl").message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<MemorySegment>> MemorySegment::Create(size_t bytes) {
  const size_t whole = (bytes + kPage - 1) / kPage * kPage + (bytes == 0 ? kPage : 0);
  absl::StatusOr<FileDescriptor> fd = MakeFile(whole);
  if (!fd.ok()) return fd.status();
  const absl::StatusOr<std::byte*> data = Map(*fd, whole, PROT_READ | PROT_WRITE);
  if (!data.ok()) return data.status();
  std::shared_ptr<MemorySegment> segment(new MemorySegment(*std::move(fd), *data, whole));
  if (absl::Status sealed = Seal(segment->fd_); !sealed.ok()) return sealed;
  return segment;
}

absl::StatusOr<std::shared_ptr<const MemorySegment>> MemorySegment::OfPeer(
    const FileDescriptor& fd) {
  // Of a file that is no memfd this fails.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & Seals()) != Seals()) {
    return absl::InvalidArgumentError(
        "a peer's shared memory is not sealed against shrinking, growing and others that write");
  }
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0 || about.st_size <= 0) {
    return absl::InvalidArgumentError("a peer's shared memory has no size");
  }
  FileDescriptor own(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return absl::ErrnoToStatus(errno, "a peer's shared memory");
  const auto bytes = static_cast<size_t>(about.st_size);
  const absl::StatusOr<std::byte*> data = Map(own, bytes, PROT_READ);
  if (!data.ok()) return data.status();
  return std::shared_ptr<const MemorySegment>(new MemorySegment(std::move(own), *data, bytes));
}

absl::StatusOr<std::shared_ptr<MemorySegment>> MemorySegment::InPlaceOf(MemorySegment& former) {
  absl::StatusOr<FileDescriptor> fd = MakeFile(former.bytes_);
  if (!fd.ok()) return fd.status();
  // Sealed before it takes the place: where that fails the former is still there.
  const absl::StatusOr<std::byte*> data = Map(*fd, former.bytes_, PROT_READ | PROT_WRITE);
  if (!data.ok()) return data.status();
  absl::Status status = Seal(*fd);
  if (status.ok() && ::mremap(*data, former.bytes_, former.bytes_, MREMAP_MAYMOVE | MREMAP_FIXED,
                              former.data_) == MAP_FAILED) {
    status = NoMemory(former.bytes_);
  }
  if (!status.ok()) {
    ::munmap(*data, former.bytes_);
    return status;
  }
  former.displaced_ = true;
  return std::shared_ptr<MemorySegment>(
      new MemorySegment(*std::move(fd), former.data_, former.bytes_));
}

absl::Status MemorySegment::ShowAt(std::byte* where, size_t offset, size_t bytes,
                                   bool at_once) const {
  if (offset > bytes_ || bytes > bytes_ - offset) {
    return absl::OutOfRangeError(
        absl::StrCat("a segment of ", bytes_, " bytes has not ", bytes, " from byte ", offset));
  }
  void* const shown =
      ::mmap(where, bytes, PROT_READ, MAP_SHARED | MAP_FIXED | (at_once ? MAP_POPULATE : 0),
             fd_.get(), static_cast<off_t>(offset));
  return shown == MAP_FAILED ? NoMemory(bytes) : absl::OkStatus();
}

MemorySegment::~MemorySegment() {
  if (!displaced_) ::munmap(data_, bytes_);
}

}  // namespace parley
