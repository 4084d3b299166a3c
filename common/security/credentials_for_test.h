#ifndef PARLEY_COMMON_SECURITY_CREDENTIALS_FOR_TEST_H_
#define PARLEY_COMMON_SECURITY_CREDENTIALS_FOR_TEST_H_

#include <memory>

#include "common/security/credentials.h"
#include "common/security/new_credentials.h"

namespace parley {

// Of a job with TLS; of one job with each call.
inline SharedCredentials NewTlsCredentials() {
  return std::make_shared<const Credentials>(*NewCredentials(/*tls=*/true));
}

// Always those of the same job.
inline const SharedCredentials& OwnTlsCredentials() {
  static const auto* const own = new SharedCredentials(NewTlsCredentials());
  return *own;
}

}  // namespace parley

#endif  // PARLEY_COMMON_SECURITY_CREDENTIALS_FOR_TEST_H_
