#ifndef PARLEY_TESTS_FUZZ_SHOWN_FILES_H_
#define PARLEY_TESTS_FUZZ_SHOWN_FILES_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/file_descriptor.h"
#include "common/shared_memory/memory_segment.h"
#include "tests/fuzz/require.h"

namespace parley {

// Reads something of each page: where there is no memory the process ends.
inline void Touch(absl::Span<const std::byte> bytes) {
  const volatile std::byte* const data = bytes.data();
  for (size_t at = 0; at < bytes.size(); at += 4096) (void)data[at];
  if (!bytes.empty()) (void)data[bytes.size() - 1];
}

// What a hostile process may send where memory is expected, by number: whatever an input asks for
// there is some.
class ShownFiles {
 public:
  ShownFiles(size_t large, size_t odd) : large_(*MemorySegment::Create(large)) {
    odd_ = FileDescriptor(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    Require(::ftruncate(odd_.get(), static_cast<off_t>(odd)) == 0);
    constexpr int kFutureWrite = 0x0010;
    Require(::fcntl(odd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | kFutureWrite) == 0);
    unsealed_ = FileDescriptor(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    Require(::ftruncate(unsealed_.get(), 1 << 20) == 0);
    none_ = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  // What a peer shows that means well.
  MemorySegment& large() const { return *large_; }

  int odd() const { return odd_.get(); }            // sealed; may end within a page
  int unsealed() const { return unsealed_.get(); }  // can be taken away

  // Any of these and others.
  std::vector<int> Some(size_t first, size_t count) const {
    const int all[] = {large_->fd().get(), small_->fd().get(), odd_.get(), unsealed_.get(),
                       none_.get()};
    std::vector<int> files;
    for (size_t i = 0; i < count; ++i) files.push_back(all[(first + i) % std::size(all)]);
    return files;
  }

 private:
  const std::shared_ptr<MemorySegment> large_;
  const std::shared_ptr<MemorySegment> small_ = *MemorySegment::Create(4096);
  FileDescriptor odd_;
  FileDescriptor unsealed_;
  FileDescriptor none_;  // is no memory
};

}  // namespace parley

#endif  // PARLEY_TESTS_FUZZ_SHOWN_FILES_H_
