#ifndef PARLEY_COMMON_SHARED_MEMORY_LOCAL_SOCKET_H_
#define PARLEY_COMMON_SHARED_MEMORY_LOCAL_SOCKET_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/shared_memory/memory_segment.h"

namespace parley {

// A message between two processes of one machine, and the files that came with it.
struct LocalMessage {
  std::string bytes;
  std::vector<FileDescriptor> files;
};

// One end of a connection between two processes of one user on one machine: a Unix socket that
// keeps messages whole and in order and carries files (AF_UNIX, SOCK_SEQPACKET). The kernel copies
// a message: its sender cannot change it any more when it is read. Send is for any thread, Receive
// for one.
class LocalSocket {
 public:
  static constexpr size_t kMostBytes = 128 << 10;
  static constexpr size_t kMostFiles = 16;

  // To whoever listens by this name. Unavailable: nobody, or one who does not answer as fast as
  // others come. PermissionDenied: another user's process.
  static absl::StatusOr<std::unique_ptr<LocalSocket>> Connect(const std::string& name);

  explicit LocalSocket(FileDescriptor fd) : fd_(std::move(fd)) {}

  // Never waits. InvalidArgument: too large. ResourceExhausted: the peer has not read for so long
  // that there is no room. Unavailable: it is gone.
  absl::Status Send(std::string_view bytes, absl::Span<const int> files = {});

  // The next one; waits for it until then, or not at all if that is over. DeadlineExceeded: none
  // came. Unavailable: the peer is gone, or Shutdown. InvalidArgument: larger than any may be.
  absl::StatusOr<LocalMessage> Receive(absl::Time deadline);

  // Sleeps until there is something to receive, its end too, or the deadline. Any thread.
  void Await(absl::Time deadline) const;

  // Receive, here and over there, ends. Any thread.
  void Shutdown();

 private:
  const FileDescriptor fd_;
  std::vector<char> buffer_;  // Receive's
};

// Listens by a name of this machine (of the abstract namespace: no file, it goes with the process).
class LocalListener {
 public:
  // Unavailable where the name is taken. InvalidArgument where it is too long.
  static absl::StatusOr<std::unique_ptr<LocalListener>> Listen(const std::string& name);

  // The next connection; those of other users are turned away. Unavailable after Shutdown.
  absl::StatusOr<std::unique_ptr<LocalSocket>> Accept();
  void Shutdown();

 private:
  explicit LocalListener(FileDescriptor fd) : fd_(std::move(fd)) {}

  const FileDescriptor fd_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_SHARED_MEMORY_LOCAL_SOCKET_H_
