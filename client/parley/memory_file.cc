#include "client/parley/memory_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace parley {

MemoryFile::MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}

bool MemoryFile::Write(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd(), text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return false;
    done += std::max<ssize_t>(written, 0);
  }
  return true;
}

std::string MemoryFile::Read() const {
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = pread(fd(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, got);
  }
  return text;
}

}  // namespace parley
