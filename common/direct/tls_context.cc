#include "common/direct/tls_context.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// By what is fastest where the processor has instructions for AES, as all of a cluster's have.
constexpr char kCiphers[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
// The one that the job's own keys are of. What each group costs who accepts it pays before it knows
// who asks, and with the largest that OpenSSL would take that is 0.1 s.
constexpr char kGroups[] = "P-256";
// Of a peer; the job's own are one of some hundred bytes.
constexpr long kMostCertificateBytes = 16L << 10;

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(BIO* text) const { BIO_free(text); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> Reading(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> CertificateIn(const std::string& text) {
  const Owned<BIO> bytes = Reading(text);
  return Owned<X509>(bytes == nullptr ? nullptr
                                      : PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr));
}

// A key that wants a passphrase is none: nobody is asked for it on the terminal.
int NoPassphrase(char* /*room*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

Owned<EVP_PKEY> KeyIn(const std::string& text) {
  const Owned<BIO> bytes = Reading(text);
  return Owned<EVP_PKEY>(
      bytes == nullptr ? nullptr
                       : PEM_read_bio_PrivateKey(bytes.get(), nullptr, NoPassphrase, nullptr));
}

absl::Status OpenSslError(absl::string_view what) {
  std::array<char, 256> reason{};
  ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
  ERR_clear_error();
  return absl::InternalError(
      absl::StrCat("OpenSSL does not take ", what, " of the job's credentials: ", reason.data()));
}

}  // namespace

absl::StatusOr<SharedTlsContext> TlsContext::Make(const Credentials& credentials) {
  ERR_clear_error();
  Owned context(SSL_CTX_new(TLS_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), kCiphers) != 1 ||
      SSL_CTX_set1_groups_list(context.get(), kGroups) != 1 ||
      // Nobody comes back to a session: connections last as long as their processes.
      SSL_CTX_set_num_tickets(context.get(), 0) != 1) {
    return OpenSslError("TLS 1.3, for the certificate");
  }
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_cert_list(context.get(), kMostCertificateBytes);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);

  const auto certificate = CertificateIn(credentials.certificate);
  if (certificate == nullptr || SSL_CTX_use_certificate(context.get(), certificate.get()) != 1) {
    return OpenSslError("the certificate");
  }
  const auto key = KeyIn(credentials.key);
  if (key == nullptr || SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return OpenSslError("the key");
  }
  const auto authority = CertificateIn(credentials.authority);
  if (authority == nullptr ||
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get()) != 1) {
    return OpenSslError("the authority");
  }
  return SharedTlsContext(new TlsContext(std::move(context)));
}

absl::StatusOr<SharedTlsContext> TlsContextFor(const SharedCredentials& credentials) {
  if (credentials == nullptr || !credentials->tls()) return SharedTlsContext();
  return TlsContext::Make(*credentials);
}

}  // namespace parley
