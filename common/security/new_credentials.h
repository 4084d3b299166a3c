#ifndef PARLEY_COMMON_SECURITY_NEW_CREDENTIALS_H_
#define PARLEY_COMMON_SECURITY_NEW_CREDENTIALS_H_

#include "absl/status/statusor.h"
#include "common/security/credentials.h"

namespace parley {

// Draws a token of 256 bits and, with `tls`, makes a certificate authority, a certificate that it
// signs, and that one's key (ECDSA on P-256), valid from a day ago, since clocks of a cluster
// differ, for ten years. The authority's own key is forgotten: nothing else can be signed by it.
// Internal: OpenSSL does not do it; the message has its reason.
absl::StatusOr<Credentials> NewCredentials(bool tls);

}  // namespace parley

#endif  // PARLEY_COMMON_SECURITY_NEW_CREDENTIALS_H_
