#include "common/daemon/advertised.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace parley {

absl::StatusOr<std::string> AdvertisedAddress(const std::string& advertise,
                                              const std::string& listening) {
  if (advertise.empty()) return listening;
  const size_t colon = advertise.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      advertise.find_first_of(" \t") != std::string::npos ||
      !absl::SimpleAtoi(advertise.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--advertise: '", advertise,
        "' is no HOST:PORT at which others reach this process (port 0: the one it listens on)"));
  }
  if (port != 0) return advertise;
  return absl::StrCat(advertise.substr(0, colon), listening.substr(listening.rfind(':')));
}

}  // namespace parley
