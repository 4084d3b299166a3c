#include "common/security/protection.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace parley {

bool IsLoopback(const std::string& address) {
  const absl::string_view host = absl::string_view(address).substr(0, address.rfind(':'));
  if (absl::EqualsIgnoreCase(host, "localhost") || host == "[::1]") return true;
  in_addr number{};
  // "127.example.org" is a name, and anybody's.
  return inet_pton(AF_INET, std::string(host).c_str(), &number) == 1 &&
         (ntohl(number.s_addr) >> 24) == IN_LOOPBACKNET;
}

Protection ProtectionFor(Tls::Mode mode, std::initializer_list<std::string> addresses) {
  if (mode == Tls::ON) return Protection::kTls;
  if (mode == Tls::OFF) return Protection::kToken;
  const bool here = std::all_of(addresses.begin(), addresses.end(), [](const std::string& address) {
    return address.empty() || IsLoopback(address);
  });
  return here ? Protection::kOpen : Protection::kTls;
}

}  // namespace parley
