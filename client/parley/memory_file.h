#ifndef PARLEY_CLIENT_PARLEY_MEMORY_FILE_H_
#define PARLEY_CLIENT_PARLEY_MEMORY_FILE_H_

#include <string>

#include "common/file_descriptor.h"

namespace parley {

// A file in memory, for what a child reads or writes: no pipe that runs full, and nothing is left
// behind.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name);

  int fd() const { return fd_.get(); }
  // Whether there is one.
  bool valid() const { return fd_.valid(); }

  bool Write(const std::string& text);
  std::string Read() const;

 private:
  const FileDescriptor fd_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_MEMORY_FILE_H_
