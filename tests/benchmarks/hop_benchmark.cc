// What it takes to hand a tensor from one stage to the next: two processes send one to each other
// by turns, as a pipeline's processes do (client/reference: a call with a value that goes along).
// Half of a round is a hop, until the thread that waits has the tensor.
//   memcpy  of as many bytes, warm; the limit on one machine is 2 * memcpy + 50 us
//   TCP     the same bytes to and fro over one raw loopback connection, received in place
//
//   bazel run -c opt //tests/benchmarks:hop_benchmark -- [--tcp | --grpc] [--tls]
//   [--kib=4,64,1024,16384]
//     [--rounds=300]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/reference/hop.h"
#include "common/security/new_credentials.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"

namespace parley {
namespace {

bool SendAll(int socket, const void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t sent =
        ::send(socket, static_cast<const char*>(data) + at, bytes - at, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int socket, void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t got = ::recv(socket, static_cast<char*>(data) + at, bytes - at, 0);
    if (got <= 0) return false;
    at += static_cast<size_t>(got);
  }
  return true;
}

// Two connected TCP sockets of the loopback.
void ConnectedPair(int& near, int& far) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  near = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::connect(near, reinterpret_cast<sockaddr*>(&address), size) != 0) {
    Require(absl::UnavailableError("no loopback connection"));
  }
  far = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  const int on = 1;
  for (const int socket : {near, far}) {
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
}

// How tensors go.
struct Kind {
  HopEnd::Way way = HopEnd::Way::kSharedMemory;
  SharedCredentials credentials;
};

std::unique_ptr<HopEnd> StartEnd(const Kind& kind) {
  auto end = HopEnd::Start(kind.way, kind.credentials);
  Require(end.status());
  return *std::move(end);
}

ValuePtr Receive(HopEnd& end) {
  auto value = end.Receive();
  Require(value.status());
  return *std::move(value);
}

// The other process: gives back as much as it gets.
int Echo(int socket, const Kind& kind, const std::vector<size_t>& sizes, int rounds) {
  const auto end = StartEnd(kind);
  char address[64] = {};
  std::snprintf(address, sizeof(address), "%s", end->address().c_str());
  char peer[64] = {};
  if (!SendAll(socket, address, sizeof(address)) || !ReceiveAll(socket, peer, sizeof(peer))) {
    return 1;
  }
  Require(end->Connect(peer));
  for (const size_t size : sizes) {
    const auto bytes = std::make_shared<const std::vector<char>>(size, 'b');
    for (int round = 0; round < rounds; ++round) {
      const ValuePtr value = Receive(*end);
      if (value->tensors.at(0).bytes.size() != size) return 1;
      Require(end->Send(bytes));
    }
    std::vector<char> buffer(size);
    for (int round = 0; round < rounds; ++round) {
      if (!ReceiveAll(socket, buffer.data(), size) || !SendAll(socket, buffer.data(), size)) {
        return 1;
      }
    }
  }
  char word = 0;
  return ReceiveAll(socket, &word, 1) ? 0 : 1;  // the other side has what it wanted
}

int Main(int argc, char** argv) {
  CLI::App app("What a hop between two stages takes.", "hop_benchmark");
  bool tcp = false;
  bool grpc = false;
  bool tls = false;
  std::vector<size_t> sizes = {4, 64, 1024, 16384};
  int rounds = 300;
  app.add_flag("--tcp", tcp, "As between hosts: direct connections, no shared memory");
  app.add_flag("--grpc", grpc, "As where there are no direct connections either");
  app.add_flag("--tls", tls, "With --tcp or --grpc: encrypted");
  app.add_option("--kib", sizes, "Of the tensor")->delimiter(',');
  app.add_option("--rounds", rounds, "Of each size; medians are told")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (size_t& size : sizes) size <<= 10;

  Kind kind;
  if (tcp) kind.way = HopEnd::Way::kDirect;
  if (grpc) kind.way = HopEnd::Way::kGrpc;
  if (tls) {
    absl::StatusOr<Credentials> made = NewCredentials(/*tls=*/true);
    Require(made.status());
    kind.credentials = std::make_shared<const Credentials>(*std::move(made));
  }

  int near = -1;
  int far = -1;
  ConnectedPair(near, far);
  const pid_t child = ::fork();  // before anything has threads
  if (child == 0) {
    ::close(near);
    std::_Exit(Echo(far, kind, sizes, rounds));
  }
  ::close(far);
  const auto end = StartEnd(kind);
  char peer[64] = {};
  char address[64] = {};
  std::snprintf(address, sizeof(address), "%s", end->address().c_str());
  if (!ReceiveAll(near, peer, sizeof(peer)) || !SendAll(near, address, sizeof(address))) {
    Require(absl::UnavailableError("the other process has ended"));
  }
  Require(end->Connect(peer));
  std::printf("%10s %10s %10s %10s %14s %10s\n", "KiB", "hop us", "memcpy us", "TCP us",
              "of the limit", "of TCP");
  for (const size_t size : sizes) {
    const auto bytes = std::make_shared<const std::vector<char>>(size, 'a');
    std::vector<char> copy(size);
    std::vector<double> hops;
    std::vector<double> copies;
    std::vector<double> raw;
    for (int round = 0; round < rounds; ++round) {
      hops.push_back(SecondsOf([&] {
                       Require(end->Send(bytes));
                       Receive(*end);
                     }) /
                     2);
      copies.push_back(SecondsOf([&] { std::memcpy(copy.data(), bytes->data(), size); }));
      asm volatile("" : : "r"(copy.data()) : "memory");
    }
    for (int round = 0; round < rounds; ++round) {
      raw.push_back(SecondsOf([&] {
                      if (!SendAll(near, bytes->data(), size) ||
                          !ReceiveAll(near, copy.data(), size)) {
                        Require(absl::UnavailableError("the other process has ended"));
                      }
                    }) /
                    2);
    }
    const double limit = 2 * Median(copies) + 50e-6;
    std::printf("%10zu %10.1f %10.1f %10.1f %14.2f %10.2f\n", size >> 10, 1e6 * Median(hops),
                1e6 * Median(copies), 1e6 * Median(raw), Median(hops) / limit,
                Median(raw) / Median(hops));
    std::fflush(stdout);
  }
  const char word = 0;
  SendAll(near, &word, 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
