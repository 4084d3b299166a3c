#ifndef PARLEY_COMMON_FILE_DESCRIPTOR_H_
#define PARLEY_COMMON_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace parley {

// A file descriptor that is closed with it; -1: none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  // It is whoever has asked who closes it from now on.
  int Release() { return std::exchange(fd_, -1); }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace parley

#endif  // PARLEY_COMMON_FILE_DESCRIPTOR_H_
