#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_NETWORK_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_NETWORK_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/parley/doctor/finding.h"
#include "client/parley/doctor/job_needs.h"
#include "client/parley/doctor/system_files.h"

namespace parley {

// How the kernel's TCP is set up, and the machine's interfaces.
struct NetworkFacts {
  struct Interface {
    std::string name;
    bool up = false;
    uint64_t mtu = 0;  // bytes
    std::optional<uint64_t> bits_per_second;
  };

  using Interfaces = std::vector<Interface>;

  std::string congestion_control;          // "cubic"; empty: not told
  std::string congestion_controls;         // that can be had: "reno cubic"
  std::optional<uint64_t> receive_buffer;  // bytes, the most of one connection (tcp_rmem)
  std::optional<uint64_t> send_buffer;     // likewise (tcp_wmem)
  uint64_t first_port = 0;                 // of those that the system gives out
  uint64_t last_port = 0;
  std::optional<uint64_t> waiting_connections;  // at one port, until it takes them (somaxconn)
  std::optional<Interfaces> interfaces;         // but for loopback; none: not told
};

NetworkFacts LookAtNetwork(const SystemFiles& files);

// Whether tensors will go as fast as the network does, and connections can be had.
Findings CheckNetwork(const NetworkFacts& facts, const JobNeeds& needs);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_NETWORK_CHECK_H_
