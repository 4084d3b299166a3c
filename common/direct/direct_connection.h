#ifndef PARLEY_COMMON_DIRECT_DIRECT_CONNECTION_H_
#define PARLEY_COMMON_DIRECT_DIRECT_CONNECTION_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/direct/direct_loop.h"
#include "common/direct/frame.h"
#include "common/direct/receive_buffers.h"
#include "common/direct/tls_stream.h"
#include "common/file_descriptor.h"
#include "common/tensor_slice.h"
#include "proto/direct.pb.h"

namespace parley {

// One end of a direct connection (docs/direct_connections.md): frames in order, both ways, over a
// TCP socket, encrypted where the job has TLS. A frame is written by whoever sends it as far as the
// socket takes it, and the rest by the loop; nobody waits. Thread-safe; held as shared.
class DirectConnection final : public DirectLoop::Watched,
                               public std::enable_shared_from_this<DirectConnection> {
 public:
  // Whose connection it is. All on the loop's thread, or on the one that ends the loop.
  class Reader {
   public:
    virtual ~Reader() = default;
    // Not OK: the connection is to end.
    virtual absl::Status OnFrame(DirectConnection& connection, ReceivedFrame frame) = 0;
    // Now and then.
    virtual void OnTick(DirectConnection& connection, absl::Time now) = 0;
    // It is over: nothing comes after this, and no frame's bytes are read any more. Once.
    virtual void OnEnd(DirectConnection& connection, const absl::Status& why) = 0;
  };

  // fd: a TCP socket that is connected, or about to be. tls: nullptr: not encrypted. Else the
  // reader's OnEnd may have any error of TlsStream::Open. nullptr: the loop is ending; the reader
  // hears nothing. Until Welcome no more is read than a greeting (kGreetingLimits).
  static std::shared_ptr<DirectConnection> Start(DirectLoop& loop, FileDescriptor fd,
                                                 std::unique_ptr<TlsStream> tls,
                                                 std::shared_ptr<ReceiveBuffers> buffers,
                                                 std::shared_ptr<Reader> reader);

  // The other side is who was meant, and may send whatever there is. In Reader::OnFrame.
  void Welcome() { incoming_.SetLimits({}); }

  // The frame's number, from 1. slices: `owner` keeps the bytes, which stay as they are until they
  // are sent. InvalidArgument: larger than any may be. ResourceExhausted: so much waits to be sent
  // already. Unavailable: the connection is over.
  absl::StatusOr<uint64_t> Send(DirectFrame frame, std::vector<TensorSlice> slices);

  // Whether nothing of this frame is read here any more.
  bool IsSent(uint64_t frame) const;
  bool HasUnsent() const;

  // Sends no more, and reads the bytes of no frame when it returns; the reader is told soon, unless
  // the loop ends first. Any thread.
  void Close(absl::Status why);

  int fd() const override { return fd_.get(); }
  bool OnReady(uint32_t ready) override;
  void OnTick(absl::Time now) override;
  void OnStop() override;

 private:
  DirectConnection(DirectLoop& loop, FileDescriptor fd, std::unique_ptr<TlsStream> tls,
                   std::shared_ptr<ReceiveBuffers> buffers, std::shared_ptr<Reader> reader)
      : loop_(loop),
        fd_(std::move(fd)),
        tls_(std::move(tls)),
        incoming_(std::move(buffers), kGreetingLimits),
        reader_(std::move(reader)) {}

  // What the socket has, for the reader.
  absl::Status Read();
  absl::Status ReadPlain();
  absl::Status ReadSealed();
  absl::Status OpenAll();  // of what tls_ has been given
  // Sends what tls_ has to say, after it was given something.
  void Answer(const absl::Status& opened);
  // The frames that are whole now.
  absl::Status HandOver();

  // As much as the socket takes, of the frames that wait.
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Some of it; how many bytes have gone. 0: no more for now.
  absl::StatusOr<size_t> WritePlain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<size_t> WriteSealed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<size_t> SendSealed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropSealed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next bytes of the frames that wait; as many of the parts as there are.
  absl::Span<const iovec> NextParts(absl::Span<iovec> parts) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // So many of them are not needed here any more.
  void Advance(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseLocked(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End();

  DirectLoop& loop_;
  const FileDescriptor fd_;
  const std::unique_ptr<TlsStream> tls_;  // nullptr: not encrypted

  // The loop's.
  bool greeted_ = false;  // of tls_
  FrameReader incoming_;
  std::vector<ReceivedFrame> whole_;
  std::shared_ptr<Reader> reader_;  // until the end

  mutable absl::Mutex mu_;
  absl::Status over_ ABSL_GUARDED_BY(mu_);  // not OK: why
  std::deque<std::unique_ptr<OutgoingFrame>> outgoing_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0;  // frames
  size_t bytes_left_ ABSL_GUARDED_BY(mu_) = 0;
  std::string sealed_ ABSL_GUARDED_BY(mu_);  // for the socket, from sealed_at_ on
  size_t sealed_at_ ABSL_GUARDED_BY(mu_) = 0;
  int idle_ticks_ ABSL_GUARDED_BY(mu_) = 0;       // since something was sealed
  bool wants_room_ ABSL_GUARDED_BY(mu_) = false;  // the loop is to write
};

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_DIRECT_CONNECTION_H_
