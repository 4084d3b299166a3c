#include "common/direct/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
// So much is sealed before it is sent: it is still in the processor's cache then.
constexpr size_t kSealedAtOnce = 256 << 10;
// Bytes of a greeting: some more than the one of our own, which has a certificate of some hundred.
// Of a peer that nobody knows yet no more is kept.
constexpr size_t kMostGreeting = 16 << 10;
// Bytes that wait for the peer to take them though nobody has sealed anything.
constexpr size_t kMostAnswers = 64 << 10;

absl::Span<const std::byte> BytesOf(const iovec& part) {
  return {static_cast<const std::byte*>(part.iov_base), part.iov_len};
}

std::string ReasonOf(unsigned long error) {
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? absl::StrCat("error ", error) : reason;
}

}  // namespace

const BIO_METHOD* TlsStream::Pipe::Method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "parley");
    if (made == nullptr || BIO_meth_set_write_ex(made, Write) != 1 ||
        BIO_meth_set_read_ex(made, Read) != 1 || BIO_meth_set_ctrl(made, Control) != 1) {
      return static_cast<BIO_METHOD*>(nullptr);
    }
    return made;
  }();
  return method;
}

int TlsStream::Pipe::Write(BIO* bio, const char* data, size_t size, size_t* written) {
  const Pipe& pipe = *static_cast<Pipe*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  // Whoever wants another key of ours with each of his records is answered each time.
  if (pipe.sealed == &pipe.own && pipe.own.size() > kMostAnswers) return 0;
  pipe.sealed->append(data, size);
  *written = size;
  return 1;
}

int TlsStream::Pipe::Read(BIO* bio, char* room, size_t size, size_t* read) {
  absl::Span<const std::byte>& came = static_cast<Pipe*>(BIO_get_data(bio))->came;
  BIO_clear_retry_flags(bio);
  *read = std::min(size, came.size());
  if (came.empty()) {
    BIO_set_retry_read(bio);
    return 0;
  }
  std::memcpy(room, came.data(), *read);
  came.remove_prefix(*read);
  return 1;
}

long TlsStream::Pipe::Control(BIO* /*bio*/, int command, long /*number*/, void* /*data*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

absl::StatusOr<std::unique_ptr<TlsStream>> TlsStream::Make(const SharedTlsContext& context,
                                                           Side side, uint64_t records_of_a_key) {
  const absl::Status no_memory = absl::ResourceExhaustedError("OpenSSL has no memory");
  std::unique_ptr<SSL, Free> ssl(SSL_new(context->get()));
  BIO* const bio = Pipe::Method() == nullptr ? nullptr : BIO_new(Pipe::Method());
  if (ssl == nullptr || bio == nullptr) {
    BIO_free(bio);
    return no_memory;
  }
  SSL_set_bio(ssl.get(), bio, bio);  // which owns it now
  if (side == Side::kAccepts) {
    SSL_set_accept_state(ssl.get());
  } else {
    SSL_set_connect_state(ssl.get());
    if (SSL_set1_host(ssl.get(), kTlsName) != 1) return no_memory;
  }
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(ssl), records_of_a_key));
  absl::MutexLock lock(&stream->mu_);
  BIO_set_data(bio, &stream->pipe_);
  BIO_set_init(bio, 1);
  return stream;
}

TlsStream::~TlsStream() = default;

absl::StatusOr<size_t> TlsStream::Seal(absl::Span<const iovec> parts, std::string& sealed) {
  size_t taken = 0;
  size_t at = 0;  // within the first of the parts
  while (true) {
    for (; !parts.empty() && at >= parts.front().iov_len; parts.remove_prefix(1)) {
      at -= parts.front().iov_len;
    }
    absl::Span<const std::byte> bytes;
    if (!parts.empty() && taken < kSealedAtOnce) {
      bytes = BytesOf(parts.front()).subspan(at);
      if (bytes.size() < kRecordBytes && parts.size() > 1) bytes = Gather(parts, at);
    }
    // Who opens has a turn after each record.
    absl::MutexLock lock(&mu_);
    sealed.append(pipe_.own);
    pipe_.own.clear();
    if (bytes.empty()) return taken;
    pipe_.sealed = &sealed;
    const absl::StatusOr<size_t> done = SealRecord(bytes);
    pipe_.sealed = &pipe_.own;
    if (!done.ok()) return done.status();
    if (*done == 0) return taken;
    taken += *done;
    at += *done;
  }
}

absl::Span<const std::byte> TlsStream::Gather(absl::Span<const iovec> parts, size_t at) {
  gathered_.clear();
  for (const iovec& part : parts) {
    const absl::Span<const std::byte> bytes = BytesOf(part).subspan(std::exchange(at, 0));
    const size_t count = std::min(bytes.size(), kRecordBytes - gathered_.size());
    gathered_.append(reinterpret_cast<const char*>(bytes.data()), count);
    if (gathered_.size() == kRecordBytes) break;
  }
  return {reinterpret_cast<const std::byte*>(gathered_.data()), gathered_.size()};
}

absl::StatusOr<size_t> TlsStream::SealRecord(absl::Span<const std::byte> bytes) {
  ERR_clear_error();
  if (records_ == records_of_a_key_) {
    // Told to the other side with the next record.
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
      return absl::InternalError(absl::StrCat("no other key: ", ReasonOf(ERR_peek_error())));
    }
    records_ = 0;
  }
  size_t sealed = 0;
  const int result =
      SSL_write_ex(ssl_.get(), bytes.data(), std::min(bytes.size(), kRecordBytes), &sealed);
  if (result == 1) {
    ++records_;
    return sealed;
  }
  if (absl::Status why = WhyNot(result); !why.ok()) return why;
  return 0;
}

bool TlsStream::IsGreeted() const {
  absl::MutexLock lock(&mu_);
  return SSL_is_init_finished(ssl_.get()) == 1;
}

bool TlsStream::HasSealed() const {
  absl::MutexLock lock(&mu_);
  return !pipe_.own.empty();
}

void TlsStream::Came(absl::Span<const std::byte> bytes) {
  absl::MutexLock lock(&mu_);
  pipe_.came = bytes;
  if (SSL_is_init_finished(ssl_.get()) == 0) greeting_ += bytes.size();
}

absl::StatusOr<size_t> TlsStream::Open(absl::Span<std::byte> room) {
  absl::MutexLock lock(&mu_);
  if (greeting_ > kMostGreeting && SSL_is_init_finished(ssl_.get()) == 0) {
    return absl::InvalidArgumentError("TLS: a greeting that is too long");
  }
  ERR_clear_error();
  size_t opened = 0;
  const int result = SSL_read_ex(ssl_.get(), room.data(), room.size(), &opened);
  if (result == 1) return opened;
  if (absl::Status why = WhyNot(result); !why.ok()) return why;
  return 0;
}

absl::Status TlsStream::WhyNot(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return absl::OkStatus();
    case SSL_ERROR_ZERO_RETURN:
      return absl::UnavailableError("the other side has ended the connection");
    default:
      break;
  }
  const unsigned long error = ERR_peek_last_error();
  const std::string reason = ReasonOf(error);
  const int number = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
  if (number >= SSL_AD_REASON_OFFSET) {  // an alert that has come
    return absl::UnavailableError(
        absl::StrCat("the other side has ended the connection: ", reason));
  }
  switch (number) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return absl::FailedPreconditionError(absl::StrCat("TLS: ", reason));
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return absl::PermissionDeniedError(absl::StrCat(
          "TLS: ", reason, ": ", X509_verify_cert_error_string(SSL_get_verify_result(ssl_.get()))));
    default:
      return absl::InvalidArgumentError(absl::StrCat("TLS: ", reason));
  }
}

}  // namespace parley
