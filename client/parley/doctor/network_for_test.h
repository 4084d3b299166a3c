#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_NETWORK_FOR_TEST_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_NETWORK_FOR_TEST_H_

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/parley/doctor/host_network.h"

namespace parley {

// The network of a machine node7, at 10.0.0.7, that knows node8.
class NetworkForTest final : public HostNetwork {
 public:
  std::map<std::string, std::vector<std::string>> names = {
      {"node7", {"10.0.0.7"}}, {"node8", {"10.0.0.8"}}, {"localhost", {"127.0.0.1"}}};
  std::set<uint16_t> taken;  // ports
  absl::StatusOr<absl::Duration> connection = absl::Microseconds(120);

  absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host) override {
    if (const auto found = names.find(host); found != names.end()) return found->second;
    if (host.find_first_not_of("0123456789.") == std::string::npos || host == "::1") {
      return std::vector<std::string>{host};
    }
    return absl::NotFoundError("unknown name");
  }

  std::vector<std::string> OwnAddresses() override { return {"127.0.0.1", "10.0.0.7", "::1"}; }

  absl::Status TryListen(const std::string& address, uint16_t port) override {
    const std::vector<std::string> own = OwnAddresses();
    if (!IsWildcard(address) && !IsLoopbackNumber(address) &&
        std::find(own.begin(), own.end(), address) == own.end()) {
      return absl::NotFoundError("not here");
    }
    if (taken.contains(port)) return absl::AlreadyExistsError("in use");
    if (port != 0 && port < 1024) return absl::PermissionDeniedError("not for you");
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Duration> Connect(const std::string& /*address*/, uint16_t /*port*/,
                                         absl::Duration /*limit*/) override {
    return connection;
  }
};

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_NETWORK_FOR_TEST_H_
