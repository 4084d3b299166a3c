#include "common/security/new_credentials.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace parley {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr int kSerialBits = 127;
constexpr long kDay = 24L * 60 * 60;
constexpr long kValid = 3650 * kDay;

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(BIO* text) const { BIO_free(text); }
  void operator()(BIGNUM* number) const { BN_free(number); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

absl::Status OpenSslError(absl::string_view what) {
  std::array<char, 256> reason{};
  ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL cannot make ", what, ": ", reason.data()));
}

bool Extend(X509* certificate, int extension, const char* value) {
  const Owned<X509_EXTENSION> made(X509V3_EXT_conf_nid(nullptr, nullptr, extension, value));
  return made != nullptr && X509_add_ext(certificate, made.get(), -1) == 1;
}

bool SetSerial(X509* certificate) {
  const Owned<BIGNUM> number(BN_new());
  return number != nullptr &&
         BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

// What a certificate of either kind has; not signed.
Owned<X509> Begin(const char* name, EVP_PKEY* key) {
  Owned<X509> certificate(X509_new());
  const auto* const text = reinterpret_cast<const unsigned char*>(name);
  if (certificate == nullptr || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !SetSerial(certificate.get()) ||
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay) == nullptr ||
      X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kValid) == nullptr ||
      X509_set_pubkey(certificate.get(), key) != 1 ||
      X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                                 text, -1, -1, 0) != 1) {
    return nullptr;
  }
  return certificate;
}

bool Sign(X509* certificate, const X509* issuer, EVP_PKEY* key) {
  return X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
         X509_sign(certificate, key, EVP_sha256()) > 0;
}

Owned<X509> MakeAuthority(EVP_PKEY* key) {
  Owned<X509> authority = Begin("parley: authority of one job", key);
  if (authority == nullptr ||
      !Extend(authority.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !Extend(authority.get(), NID_key_usage, "critical,keyCertSign") ||
      !Sign(authority.get(), authority.get(), key)) {
    return nullptr;
  }
  return authority;
}

Owned<X509> MakeCertificate(EVP_PKEY* key, const X509* authority, EVP_PKEY* authority_key) {
  Owned<X509> certificate = Begin(kTlsName, key);
  if (certificate == nullptr ||
      !Extend(certificate.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !Extend(certificate.get(), NID_key_usage, "critical,digitalSignature") ||
      !Extend(certificate.get(), NID_ext_key_usage, "serverAuth,clientAuth") ||
      !Extend(certificate.get(), NID_subject_alt_name, absl::StrCat("DNS:", kTlsName).c_str()) ||
      !Sign(certificate.get(), authority, authority_key)) {
    return nullptr;
  }
  return certificate;
}

// What `write` writes as text; empty where it fails.
template <class Write>
std::string Text(const Write& write) {
  const Owned<BIO> text(BIO_new(BIO_s_mem()));
  if (text == nullptr || write(text.get()) != 1) return "";
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(text.get(), &bytes);
  return size <= 0 ? "" : std::string(bytes, static_cast<size_t>(size));
}

std::string CertificateText(X509* certificate) {
  return Text([&](BIO* text) { return PEM_write_bio_X509(text, certificate); });
}

}  // namespace

absl::StatusOr<Credentials> NewCredentials(bool tls) {
  Credentials made;
  std::array<unsigned char, kTokenBytes> token{};
  if (RAND_bytes(token.data(), static_cast<int>(token.size())) != 1) {
    return OpenSslError("a random token");
  }
  made.token = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(token.data()), token.size()));
  if (!tls) return made;

  const Owned<EVP_PKEY> authority_key(EVP_EC_gen("P-256"));
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  if (authority_key == nullptr || key == nullptr) return OpenSslError("a key");
  const Owned<X509> authority = MakeAuthority(authority_key.get());
  if (authority == nullptr) return OpenSslError("a certificate authority");
  const Owned<X509> certificate = MakeCertificate(key.get(), authority.get(), authority_key.get());
  if (certificate == nullptr) return OpenSslError("a certificate");
  made.authority = CertificateText(authority.get());
  made.certificate = CertificateText(certificate.get());
  made.key = Text([&](BIO* text) {
    return PEM_write_bio_PrivateKey(text, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (made.authority.empty() || made.certificate.empty() || made.key.empty()) {
    return OpenSslError("the text of a certificate");
  }
  return made;
}

}  // namespace parley
