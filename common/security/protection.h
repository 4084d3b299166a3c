#ifndef PARLEY_COMMON_SECURITY_PROTECTION_H_
#define PARLEY_COMMON_SECURITY_PROTECTION_H_

#include <initializer_list>
#include <string>

#include "proto/job.pb.h"

namespace parley {

// How a job guards its connections (docs/security.md).
enum class Protection {
  kOpen,   // whoever reaches a port may call
  kToken,  // who says the job's token
  kTls,    // who has the job's certificate; encrypted
};

// Whether what listens at `address` (host:port), or is reached there, is this machine alone: 127.*,
// ::1, localhost. A name that has to be looked up counts as beyond.
bool IsLoopback(const std::string& address);

// Of a process that listens, is reached or calls at these addresses; empty ones do not count.
Protection ProtectionFor(Tls::Mode mode, std::initializer_list<std::string> addresses);

}  // namespace parley

#endif  // PARLEY_COMMON_SECURITY_PROTECTION_H_
