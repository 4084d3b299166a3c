#include "client/parley/doctor/network_check.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/parley/units.h"

namespace parley {
namespace {

// Between machines of one cluster, under load: what is on its way when a link is full.
constexpr absl::Duration kRoundTrip = absl::Milliseconds(1);
// Where no interface says how fast it is: 10 Gbit/s.
constexpr double kBitsPerSecond = 1e10;
// A process has a few ports of its own and one for each connection that it makes.
constexpr uint64_t kPortsOfAProcess = 16;

std::string SysctlText(const std::string& setting, const std::string& value) {
  return absl::StrCat("sysctl -w ", setting, "='", value,
                      "' as root, and the same in a file of /etc/sysctl.d");
}

Finding CheckCongestionControl(const NetworkFacts& facts) {
  constexpr char kWhat[] = "congestion control";
  const std::string& name = facts.congestion_control;
  if (name.empty()) return Fine(kWhat, "the kernel does not say which (net.ipv4)");
  // Measured: half of the throughput of reno or cubic within one machine, and no better on a
  // network of one hop, whose losses are those of full buffers.
  if (absl::StartsWith(name, "bbr")) {
    const bool has_cubic = absl::StrContains(facts.congestion_controls, "cubic");
    return Warning(kWhat,
                   absl::StrCat(name,
                                ": made for long ways; within a machine and a cluster it "
                                "moved half of what cubic and reno do"),
                   SysctlText("net.ipv4.tcp_congestion_control", has_cubic ? "cubic" : "reno"));
  }
  if (name == "dctcp") {
    return Warning(
        kWhat,
        "dctcp: needs switches that mark packets (ECN); where they do not, it holds back "
        "too late",
        absl::StrCat("ask whoever runs the network whether its switches mark; else ",
                     SysctlText("net.ipv4.tcp_congestion_control", "cubic")));
  }
  return Fine(kWhat, name);
}

double FastestLink(const NetworkFacts& facts) {
  double fastest = 0;
  for (const auto& interface : facts.interfaces.value_or(NetworkFacts::Interfaces())) {
    if (interface.up && interface.bits_per_second) {
      fastest = std::max(fastest, static_cast<double>(*interface.bits_per_second));
    }
  }
  return fastest > 0 ? fastest : kBitsPerSecond;
}

Finding CheckBuffers(const NetworkFacts& facts) {
  constexpr char kWhat[] = "TCP buffers";
  if (!facts.receive_buffer || !facts.send_buffer) {
    return Fine(kWhat, "the kernel does not say how large they may be");
  }
  const double speed = FastestLink(facts);
  const auto needed = static_cast<uint64_t>(speed / 8 * absl::ToDoubleSeconds(kRoundTrip));
  const std::string found =
      absl::StrFormat("up to %s to receive, %s to send; a link of %g Gbit/s has %s under way",
                      BytesText(*facts.receive_buffer), BytesText(*facts.send_buffer), speed / 1e9,
                      BytesText(needed));
  if (std::min(*facts.receive_buffer, *facts.send_buffer) >= needed) return Fine(kWhat, found);
  const uint64_t wanted = 2 * needed;
  std::string remedy;
  if (*facts.receive_buffer < needed) {
    remedy = SysctlText("net.ipv4.tcp_rmem", absl::StrCat("4096 131072 ", wanted));
  }
  if (*facts.send_buffer < needed) {
    absl::StrAppend(&remedy, remedy.empty() ? "" : "; ",
                    SysctlText("net.ipv4.tcp_wmem", absl::StrCat("4096 65536 ", wanted)));
  }
  return Warning(kWhat, found, remedy);
}

Finding CheckPorts(const NetworkFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "free ports";
  if (facts.last_port == 0) return Fine(kWhat, "the kernel does not say which it gives out");
  const uint64_t ports = facts.last_port - std::min(facts.last_port, facts.first_port) + 1;
  const uint64_t needed = needs.processes * (kPortsOfAProcess + 4 * needs.peers);
  const std::string found = absl::StrCat(ports, ", ", facts.first_port, " to ", facts.last_port,
                                         "; the job takes up to ", needed, " here");
  if (ports >= needed) return Fine(kWhat, found);
  const std::string remedy = SysctlText("net.ipv4.ip_local_port_range", "1024 65535");
  // Within a machine most of it goes without ports, through shared memory.
  return ports < needs.processes * kPortsOfAProcess ? Failure(kWhat, found, remedy)
                                                    : Warning(kWhat, found, remedy);
}

Finding CheckWaitingConnections(const NetworkFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "waiting connections";
  if (!facts.waiting_connections)
    return Fine(kWhat, "the kernel does not say how many there may be");
  const uint64_t needed = std::max<uint64_t>(64, 2 * needs.peers);
  const std::string found = absl::StrCat(*facts.waiting_connections, " at one port; ", needed,
                                         " may come at once when all processes start");
  if (*facts.waiting_connections >= needed) return Fine(kWhat, found);
  return Warning(kWhat, found, SysctlText("net.core.somaxconn", absl::StrCat(2 * needed)));
}

Finding CheckInterfaces(const NetworkFacts& facts, const JobNeeds& needs) {
  constexpr char kWhat[] = "interfaces";
  std::vector<std::string> texts;
  std::vector<uint64_t> sizes;
  if (!facts.interfaces)
    return Fine(kWhat, "the kernel does not say which are up (/sys/class/net)");
  for (const auto& interface : *facts.interfaces) {
    if (!interface.up) continue;
    std::string text = absl::StrCat(interface.name, " MTU ", interface.mtu);
    if (interface.bits_per_second) {
      absl::StrAppendFormat(&text, " %g Gbit/s",
                            static_cast<double>(*interface.bits_per_second) / 1e9);
    }
    texts.push_back(std::move(text));
    sizes.push_back(interface.mtu);
  }
  if (texts.empty()) {
    if (needs.all_here) return Fine(kWhat, "none but loopback is up: enough for one machine");
    return Failure(kWhat, "none but loopback is up",
                   "ip link set DEV up, or ask whoever runs the machine: a job on several machines "
                   "needs a network");
  }
  const std::string found = absl::StrJoin(texts, ", ");
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  // All machines of a network must have the same, or large packets get lost.
  return Fine(kWhat, *least == *most ? found
                                     : absl::StrCat(found,
                                                    "; packets differ: each must be the same "
                                                    "on all machines of its network"));
}

}  // namespace

NetworkFacts LookAtNetwork(const SystemFiles& files) {
  NetworkFacts facts;
  const std::string ipv4 = "/proc/sys/net/ipv4/";
  facts.congestion_control = files.Text(ipv4 + "tcp_congestion_control").value_or("");
  facts.congestion_controls = files.Text(ipv4 + "tcp_available_congestion_control").value_or("");
  const auto last = [&](const std::string& path) -> std::optional<uint64_t> {
    const auto numbers = files.Numbers(path);
    if (numbers.size() != 3) return std::nullopt;
    return numbers.back();
  };
  facts.receive_buffer = last(ipv4 + "tcp_rmem");
  facts.send_buffer = last(ipv4 + "tcp_wmem");
  const auto ports = files.Numbers(ipv4 + "ip_local_port_range");
  if (ports.size() == 2) {
    facts.first_port = ports[0];
    facts.last_port = ports[1];
  }
  facts.waiting_connections = files.Number("/proc/sys/net/core/somaxconn");
  const std::string folder = "/sys/class/net";
  const std::vector<std::string> names = files.List(folder);
  if (!names.empty()) facts.interfaces.emplace();  // loopback is always there
  for (const std::string& name : names) {
    if (name == "lo") continue;
    NetworkFacts::Interface interface;
    interface.name = name;
    const std::string place = absl::StrCat(folder, "/", name, "/");
    interface.up = files.Text(place + "operstate").value_or("") == "up";
    interface.mtu = files.Number(place + "mtu").value_or(0);
    // Megabits; "-1", or no answer, where it does not know.
    const auto speed = files.Number(place + "speed");
    if (speed && *speed > 0 && *speed < 10'000'000) interface.bits_per_second = *speed * 1'000'000;
    facts.interfaces->push_back(std::move(interface));
  }
  return facts;
}

Findings CheckNetwork(const NetworkFacts& facts, const JobNeeds& needs) {
  return {CheckCongestionControl(facts), CheckBuffers(facts), CheckPorts(facts, needs),
          CheckWaitingConnections(facts, needs), CheckInterfaces(facts, needs)};
}

}  // namespace parley
