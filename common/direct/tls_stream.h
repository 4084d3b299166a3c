#ifndef PARLEY_COMMON_DIRECT_TLS_STREAM_H_
#define PARLEY_COMMON_DIRECT_TLS_STREAM_H_

#include <openssl/ssl.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/direct/tls_context.h"

namespace parley {

// One end of a TLS 1.3 connection (RFC 8446, by OpenSSL) without its socket: what is to be sent is
// sealed here, and what has come is opened. Both ends show the job's certificate and ask for it; a
// greeting goes before everything else, and takes bytes both ways.
//
// One thread at a time seals, another one opens; they may do so at once, and have turns by records
// (16 KiB).
class TlsStream {
 public:
  enum class Side { kConnects, kAccepts };
  // Full records (16 KiB) that one key is good for; then it is changed. AES-GCM is for 2^24.5 of
  // them (RFC 8446, 5.5), which a fast network has sent within minutes.
  static constexpr uint64_t kRecordsOfAKey = 1 << 20;

  // What Seal appends at once, about.
  static constexpr size_t kMostSealed = 288 << 10;

  // ResourceExhausted: OpenSSL has no memory.
  static absl::StatusOr<std::unique_ptr<TlsStream>> Make(
      const SharedTlsContext& context, Side side, uint64_t records_of_a_key = kRecordsOfAKey);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Appends to `sealed` what is to be sent: of the greeting what there is, and then the beginning
  // of these bytes, which lie one behind the other, some hundred KiB at most. How many of them:
  // they are not read any more when it returns. 0: the two have not greeted each other yet, or
  // `parts` are empty. An error: as of Open.
  absl::StatusOr<size_t> Seal(absl::Span<const iovec> parts, std::string& sealed);
  // Whether the greeting is over, and what is sealed is taken.
  bool IsGreeted() const;
  // Whether something is to be sent though nobody has sealed it: of the greeting, when something
  // has come.
  bool HasSealed() const;

  // What has come from the other side, all of which Open is to have opened before there is more.
  // The bytes stay as they are until then.
  void Came(absl::Span<const std::byte> bytes);
  // Puts what they say into `room` (not empty); how much it is. 0: that was all. The connection is
  // to end after any error, when what Seal still has of nothing is sent, which tells the other
  // side: InvalidArgument: it does not speak TLS 1.3, its greeting is longer than those of this
  // program are, it wants more answers than it takes, or somebody between the two has changed what
  // was sent. FailedPrecondition: it shows no certificate. PermissionDenied: it shows one that is
  // not this job's. Unavailable: it has ended the connection, and told so.
  absl::StatusOr<size_t> Open(absl::Span<std::byte> room);

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  // What OpenSSL takes for a socket.
  struct Pipe {
    static const BIO_METHOD* Method();
    static int Write(BIO* bio, const char* data, size_t size, size_t* written);
    static int Read(BIO* bio, char* room, size_t size, size_t* read);
    static long Control(BIO* bio, int command, long number, void* data);

    absl::Span<const std::byte> came;
    std::string own;             // what nobody has sealed
    std::string* sealed = &own;  // where what is to be sent goes
  };

  TlsStream(std::unique_ptr<SSL, Free> ssl, uint64_t records_of_a_key)
      : records_of_a_key_(records_of_a_key), ssl_(std::move(ssl)) {}

  // The first bytes of these, enough for a record, beginning at `at` of the first part.
  absl::Span<const std::byte> Gather(absl::Span<const iovec> parts, size_t at);
  // One record; how many of the bytes are in it.
  absl::StatusOr<size_t> SealRecord(absl::Span<const std::byte> bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why OpenSSL has done nothing; OK: it waits for the other side.
  absl::Status WhyNot(int result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t records_of_a_key_;
  std::string gathered_;  // small bytes, for one record; who seals
  mutable absl::Mutex mu_;
  Pipe pipe_ ABSL_GUARDED_BY(mu_);
  uint64_t records_ ABSL_GUARDED_BY(mu_) = 0;  // with this key
  size_t greeting_ ABSL_GUARDED_BY(mu_) = 0;   // bytes that came before it was over
  const std::unique_ptr<SSL, Free> ssl_ ABSL_PT_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_TLS_STREAM_H_
