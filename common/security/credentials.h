#ifndef PARLEY_COMMON_SECURITY_CREDENTIALS_H_
#define PARLEY_COMMON_SECURITY_CREDENTIALS_H_

#include <memory>
#include <string>

namespace parley {

// What the processes of one job know and nobody else does (docs/security.md). All processes of a
// job have the same, and whoever has it takes part in the job. Constant, so shared by threads.
struct Credentials {
  // Random, printable. Said with every call where there is no certificate.
  std::string token;

  // PEM; all empty where the job's connections are not TLS. The job's one certificate, for the name
  // kTlsName, signed by an authority of the job's own, whose key nobody keeps.
  std::string authority;
  std::string certificate;
  std::string key;

  bool tls() const { return !key.empty(); }
};

// The name that the certificate of every job is for: it is not a host's, since processes come up
// wherever Slurm starts them.
inline constexpr char kTlsName[] = "parley";

// nullptr: the job is open, and asks nobody who he is.
using SharedCredentials = std::shared_ptr<const Credentials>;

}  // namespace parley

#endif  // PARLEY_COMMON_SECURITY_CREDENTIALS_H_
