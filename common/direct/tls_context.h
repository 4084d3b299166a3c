#ifndef PARLEY_COMMON_DIRECT_TLS_CONTEXT_H_
#define PARLEY_COMMON_DIRECT_TLS_CONTEXT_H_

#include <openssl/ssl.h>

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/security/credentials.h"

namespace parley {

// What all of a process's direct connections of a job with TLS have in common: the job's
// certificate and key, which it shows, and the authority whose certificates it believes. TLS 1.3
// alone, by OpenSSL. Constant once made, so shared by threads.
class TlsContext {
 public:
  // credentials.tls(). Internal: OpenSSL does not take them; the message has its reason.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Make(const Credentials& credentials);

  // OpenSSL counts who uses it, which is the only change.
  SSL_CTX* get() const { return context_.get(); }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  using Owned = std::unique_ptr<SSL_CTX, Free>;
  explicit TlsContext(Owned context) : context_(std::move(context)) {}

  const Owned context_;
};

// nullptr: connections are not encrypted.
using SharedTlsContext = std::shared_ptr<const TlsContext>;

// Of a job with these credentials: nullptr where it has no TLS.
absl::StatusOr<SharedTlsContext> TlsContextFor(const SharedCredentials& credentials);

}  // namespace parley

#endif  // PARLEY_COMMON_DIRECT_TLS_CONTEXT_H_
