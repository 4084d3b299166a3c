#include "client/parley/doctor/addresses_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace parley {
namespace {

constexpr char kAddress[] = "listen address";
constexpr char kPort[] = "listen port";

bool IsLocalName(const std::string& host) { return host == "localhost" || IsLoopbackNumber(host); }

// Those that other machines may know.
std::string ListenRemedy(HostNetwork& network) {
  std::vector<std::string> own = network.OwnAddresses();
  own.erase(std::remove_if(own.begin(), own.end(), IsLoopbackNumber), own.end());
  return own.empty() ? "this machine has no address but its own: is its network up (ip address)?"
                     : absl::StrCat("--listen with an address that this machine has: ",
                                    absl::StrJoin(own, ", "));
}

Finding CheckPort(const HostPort& place, const std::string& address, HostNetwork& network) {
  const absl::Status status = network.TryListen(address, place.port);
  const std::string where = absl::StrCat(place.host, " port ", place.port);
  if (status.ok()) {
    return Fine(kPort, place.port == 0 ? "0: the system gives a free one"
                                       : absl::StrCat(place.port, " is free"));
  }
  if (absl::IsAlreadyExists(status)) {
    return Failure(kPort, absl::StrCat(where, " is in use by another process"),
                   absl::StrCat("--listen=", place.host, ":0 takes a free one; `ss -ltnp sport = :",
                                place.port, "` says whose it is"));
  }
  if (absl::IsPermissionDenied(status)) {
    return Failure(kPort, absl::StrCat(where, " is only for root"),
                   absl::StrCat("--listen=", place.host,
                                ":0 takes a free one; else a port from "
                                "net.ipv4.ip_unprivileged_port_start on, such as 1024"));
  }
  return Failure(kPort, absl::StrCat(where, " cannot be listened on: ", status.message()),
                 "look at this machine's network (ip address, ip link)");
}

}  // namespace

bool IsForOthers(const std::string& listen) {
  const auto place = ParseHostPort(listen);
  return place.ok() && !IsLocalName(place->host);
}

Findings CheckListen(const std::string& listen, HostNetwork& network) {
  const auto place = ParseHostPort(listen);
  if (!place.ok()) {
    return {Failure(kAddress, absl::StrCat("--listen: ", place.status().message()),
                    "--listen=HOST:PORT, such as 127.0.0.1:0; port 0 takes a free one")};
  }
  const auto addresses = network.Resolve(place->host);
  if (!addresses.ok() || addresses->empty()) {
    return {
        Failure(kAddress,
                absl::StrCat(place->host, " has no address: ",
                             addresses.ok() ? "none was told" : addresses.status().message()),
                absl::StrCat("a line for ", place->host,
                             " in /etc/hosts or in the name server; or ", ListenRemedy(network)))};
  }
  const std::string& address = addresses->front();
  const std::string shown =
      address == place->host ? address : absl::StrCat(place->host, " (", address, ")");
  if (IsWildcard(address)) {
    return {Warning(kAddress, absl::StrCat(shown, ": all addresses of this machine"),
                    "give each process --advertise=HOST:0, at which others reach it, or one "
                    "address to listen on"),
            CheckPort(*place, address, network)};
  }
  if (absl::IsNotFound(network.TryListen(address, 0))) {
    return {Failure(kAddress, absl::StrCat(shown, " is no address of this machine"),
                    ListenRemedy(network))};
  }
  if (IsLoopbackNumber(address) && !IsLocalName(place->host)) {
    return {Failure(kAddress,
                    absl::StrCat(shown,
                                 " is for processes of this machine alone, under a name "
                                 "that others take for another machine's"),
                    absl::StrCat("take the line `", address, " ", place->host,
                                 "` out of /etc/hosts, or ", ListenRemedy(network)))};
  }
  Findings findings = {
      Fine(kAddress,
           absl::StrCat(shown, IsLoopbackNumber(address) ? ": for processes of this machine alone"
                                                         : ": an address of this machine"))};
  findings.push_back(CheckPort(*place, address, network));
  return findings;
}

}  // namespace parley
