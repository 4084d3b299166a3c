// What moving a model through a parameter shard costs: one worker pushes a gradient of all tensors,
// the shard (a process of its own) applies SGD or Adam, and the worker pulls the parameters,
// through the whole client library. The limit is measured in turns with it:
//   plain  one thread's `p -= rate * g`, or Adam's loads and stores, over the same bytes in one
//          process, compiled for vectors (-O3); with --outside it also copies the gradient in and
//          the parameters out
//   TCP    with --tcp or --grpc: the same bytes there and back over one raw loopback connection,
//          received in place
//
//   bazel run -c opt //tests/benchmarks:exchange_benchmark -- [--tcp | --grpc] [--tls] [--adam]
//     [--outside] [--rows] [--mib=4,16,64] [--rounds=30] [--rest=MS]
//
// --tcp: as between machines, over a direct connection. --grpc: as where none can be had. --tls:
// encrypted, as between machines unless the job has `tls: OFF`. --rest: all threads sleep so long
// before each round, so that it begins with waking the shard.
// --outside: the training loop's tensors lie elsewhere: it copies its gradient into the session's
// before it pushes, and the parameters out of the session's after it has pulled. --rows: of
// gradients every fiftieth row of 1,024 values is not zeros, as an embedding's are; what is
// compared with moves all.
//
// The second table is of small ones: the round trip of one 4 KiB tensor, and of 1,000 of them. The
// third is of several workers on the one shard: what it reduces in a second. With --tcp and --grpc
// the first is followed by one of each direction alone: a push until it is acknowledged, and later
// a pull of what is there, which in a round overlap with what comes before and after them. A pull
// is compared with raw TCP whose receiver copies what has come to its place, as a worker does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/forwarding_shard.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "client/session.h"
#include "common/security/credential_file.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/loopback_cluster.h"

namespace parley {
namespace {

constexpr float kRate = 0.001F;

struct Kind {
  bool tcp = false;
  bool grpc = false;
  bool tls = false;      // of tcp and grpc: encrypted
  bool one_way = false;  // of those: nothing is sent ahead
  bool rows = false;     // of gradients few are not zeros
  bool adam = false;
  bool outside = false;
};

__attribute__((optimize("O3"))) void PlainSgd(size_t count, const float* __restrict g,
                                              float* __restrict p) {
  for (size_t i = 0; i < count; ++i) p[i] -= kRate * g[i];
}

// Adam's loads and stores, without its roots and divisions: nothing is faster than this.
__attribute__((optimize("O3"))) void PlainAdam(size_t count, const float* __restrict g,
                                               float* __restrict p, float* __restrict m,
                                               float* __restrict v) {
  for (size_t i = 0; i < count; ++i) {
    m[i] += g[i];
    v[i] += g[i];
    p[i] -= kRate * g[i];
  }
}

// One thread that does what the shard does to the values, with the training loop's copies.
class PlainLoop {
 public:
  PlainLoop(size_t elements, const Kind& kind)
      : kind_(kind),
        parameter_(elements, 1),
        gradient_(elements, 1),
        exp_avg_(kind.adam ? elements : 0),
        exp_avg_sq_(kind.adam ? elements : 0),
        own_(kind.outside ? elements : 0),
        own_gradient_(kind.outside ? elements : 0) {}
  void Round() {
    if (kind_.outside) std::copy(own_gradient_.begin(), own_gradient_.end(), gradient_.begin());
    float* const p = parameter_.data();
    if (kind_.adam) {
      PlainAdam(parameter_.size(), gradient_.data(), p, exp_avg_.data(), exp_avg_sq_.data());
    } else {
      PlainSgd(parameter_.size(), gradient_.data(), p);
    }
    if (kind_.outside) std::copy(parameter_.begin(), parameter_.end(), own_.begin());
    // What was computed counts.
    asm volatile("" : : "r"(p), "r"(own_.data()) : "memory");
  }

 private:
  const Kind kind_;
  std::vector<float> parameter_;
  std::vector<float> gradient_;
  std::vector<float> exp_avg_;
  std::vector<float> exp_avg_sq_;
  std::vector<float> own_;
  std::vector<float> own_gradient_;
};

// A peer that takes so many bytes into their place and says so, and sends as many when it is asked
// to, over one connection.
class RawTcp {
 public:
  explicit RawTcp(size_t bytes) : here_(bytes, 1), there_(bytes, 2) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      Require(absl::UnavailableError("no loopback socket"));
    }
    near_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(near_, reinterpret_cast<sockaddr*>(&address), size) != 0) {
      Require(absl::UnavailableError("no loopback connection"));
    }
    far_ = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    for (const int socket : {near_, far_}) {
      const int on = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    peer_ = std::thread([this] {
      std::vector<char> word(1);
      while (Receive(far_, there_) && Send(far_, word) && Receive(far_, word) &&
             Send(far_, there_) && Receive(far_, word) && Send(far_, there_)) {
      }
    });
  }
  ~RawTcp() {
    ::shutdown(near_, SHUT_RDWR);
    peer_.join();
    ::close(near_);
    ::close(far_);
  }
  struct Times {
    double push = 0;    // seconds until the peer has taken all
    double pull = 0;    // of the way back, received in place
    double copied = 0;  // of that again, received in pieces that are copied to their place
  };
  Times Round() {
    Times times;
    times.push = SecondsOf([&] { Check(Send(near_, here_) && Receive(near_, word_)); });
    times.pull = SecondsOf([&] { Check(Send(near_, word_) && Receive(near_, here_)); });
    times.copied = SecondsOf([&] { Check(Send(near_, word_) && ReceiveAndCopy(near_, here_)); });
    return times;
  }

 private:
  static void Check(bool ok) {
    if (!ok) Require(absl::UnavailableError("the loopback connection broke"));
  }
  static bool Send(int socket, const std::vector<char>& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(socket, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return true;
  }
  static bool ReceiveAndCopy(int socket, std::vector<char>& bytes) {
    std::vector<char> piece(size_t{1} << 20);
    for (size_t at = 0; at < bytes.size(); at += piece.size()) {
      piece.resize(std::min(piece.size(), bytes.size() - at));
      if (!Receive(socket, piece)) return false;
      std::memcpy(bytes.data() + at, piece.data(), piece.size());
    }
    return true;
  }
  static bool Receive(int socket, std::vector<char>& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t got = ::recv(socket, bytes.data() + at, bytes.size() - at, 0);
      if (got <= 0) return false;
      at += static_cast<size_t>(got);
    }
    return true;
  }

  int near_ = -1;
  int far_ = -1;
  std::vector<char> here_;
  std::vector<char> there_;
  std::vector<char> word_ = std::vector<char>(1);
  std::thread peer_;
};

std::string JobText(const Kind& kind, size_t workers, uint64_t steps) {
  return absl::StrCat("seed: 1\nmodel { simple_cnn {} }\ndata { own {} batch: 1 }\noptimizer { ",
                      kind.adam ? "adam" : "sgd", " { rate: 0.001 } }\nsteps: ", steps,
                      "\ncluster { workers: ", workers,
                      " shards: 1 }\ncheckpoint { at_end: false }", kind.tls ? "\ntls: ON" : "");
}

// For each direction alone. A session sends its Complete behind its pushes, and its Pull behind
// that, where calls keep their order, before it knows that the shard has any of them: so here they
// do not, and it waits for each.
class OneWayConnector final : public Connector {
 public:
  explicit OneWayConnector(std::unique_ptr<Connector> remote) : remote_(std::move(remote)) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return remote_->ConnectCoordinator(address);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<OneWayShard>(remote_->ConnectShard(address));
  }
  MemorySource* memory() override { return remote_->memory(); }
  Visitors* visitors() override { return remote_->visitors(); }

 private:
  class OneWayShard final : public ForwardingShard {
   public:
    using ForwardingShard::ForwardingShard;
    bool KeepsOrder() const override { return false; }
  };
  const std::unique_ptr<Connector> remote_;
};

SharedCredentials CredentialsOf(const LoopbackCluster& cluster, const Kind& kind) {
  if (!kind.tls) return nullptr;
  // Whoever of the job comes first makes them.
  const std::string folder = cluster.directory() + "/out";
  std::filesystem::create_directories(folder);
  auto credentials = ReadOrMakeCredentials(absl::StrCat(folder, "/", kCredentialFile), true);
  Require(credentials.status());
  return *std::move(credentials);
}

// A worker of a job of so many equal tensors.
class Exchange {
 public:
  Exchange(const LoopbackCluster& cluster, size_t tensors, size_t elements, uint64_t steps,
           const Kind& kind, size_t worker = 0)
      : kind_(kind),
        connector_(MakeGrpcConnector(/*direct=*/!kind.grpc, CredentialsOf(cluster, kind))) {
    if (!kind.tcp && !kind.grpc) connector_ = MakeLocalConnector(std::move(connector_));
    if (kind.one_way) connector_ = std::make_unique<OneWayConnector>(std::move(connector_));
    Session::Options options;
    options.job = cluster.job();
    options.coordinator = cluster.coordinator();
    // Nobody calls it there; no two members have one address.
    options.address = options.metrics_address = absl::StrCat("127.0.0.1:", 1 + worker);
    auto session = Session::Join(options, *connector_);
    Require(session.status());
    session_ = *std::move(session);
    std::vector<TensorSpec> specs(tensors);
    for (size_t i = 0; i < tensors; ++i) {
      specs[i].set_name(absl::StrCat("w", i));
      specs[i].set_dtype(F32);
      specs[i].add_shape(static_cast<int64_t>(elements));
    }
    Require(session_->Register(specs, steps, 0));
    tensors_ = tensors;
    if (kind.outside) own_.assign(2 * tensors, std::vector<float>(elements, 1));
    std::vector<absl::Span<const std::byte>> zeros;
    for (size_t i = 0; i < tensors; ++i) {
      const absl::Span<std::byte> gradient = session_->gradient(i);
      std::fill(gradient.begin(), gradient.end(), std::byte{0});
      zeros.push_back(gradient);
    }
    if (session_->must_initialize()) Require(session_->Initialize(zeros));
    for (size_t i = 0; i < tensors; ++i) {
      const absl::Span<std::byte> bytes = session_->gradient(i);
      const absl::Span<float> gradient(reinterpret_cast<float*>(bytes.data()), elements);
      constexpr size_t kRow = 1024;
      for (size_t begin = 0; begin < elements; begin += kRow * (kind.rows ? 50 : 1)) {
        std::fill_n(gradient.begin() + begin, std::min(kRow, elements - begin), 1e-3F);
      }
    }
    Require(session_->Pull());
  }

  // Push, update, pull. Seconds until the gradients were acknowledged and decided (one_way: only
  // acknowledged), and of the pull.
  std::pair<double, double> Round() {
    if (!session_->NextStep().has_value()) Require(absl::InternalError("no step is left"));
    const double acknowledged = session_->traffic().push_seconds;
    const double send = SecondsOf([&] {
      for (size_t i = tensors_; i-- > 0;) {
        if (kind_.outside) {
          const absl::Span<std::byte> gradient = session_->gradient(i);
          std::memcpy(gradient.data(), own_[i].data(), gradient.size());
        }
        Require(session_->Push(i));
      }
    });
    const double complete = SecondsOf([&] { Require(session_->Complete(0).status()); });
    const double push =
        send + (kind_.one_way ? session_->traffic().push_seconds - acknowledged : complete);
    const double pull = SecondsOf([&] {
      Require(session_->Pull());
      for (size_t i = 0; kind_.outside && i < tensors_; ++i) {
        const absl::Span<const std::byte> parameter = session_->parameter(i);
        std::memcpy(own_[tensors_ + i].data(), parameter.data(), parameter.size());
      }
    });
    return {push, pull};
  }

 private:
  const Kind kind_;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Session> session_;
  size_t tensors_ = 0;
  std::vector<std::vector<float>> own_;  // outside: gradients, then parameters
};

// Bytes of gradients that the shard adds up in a second, in GB, with so many workers at once.
double ReducedBytes(const std::string& coordinator, const std::string& shard, size_t workers,
                    size_t bytes, size_t rounds, const Kind& kind) {
  const uint64_t steps = rounds + 3;
  LoopbackCluster cluster(coordinator, shard, JobText(kind, workers, steps));
  std::vector<std::thread> threads;
  std::vector<double> seconds(workers);
  for (size_t worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      Exchange exchange(cluster, 1, bytes / sizeof(float), steps, kind, worker);
      for (size_t i = 0; i < 2; ++i) exchange.Round();  // memory is touched for the first time
      seconds[worker] = SecondsOf([&] {
        for (size_t i = 0; i < rounds; ++i) exchange.Round();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double all = *std::max_element(seconds.begin(), seconds.end());
  return 1e-9 * static_cast<double>(bytes * workers * rounds) / all;
}

// Prints what each direction alone takes, beside raw TCP. pause: before each of them.
void CompareOneWay(const std::string& coordinator, const std::string& shard, size_t mib,
                   size_t rounds, Kind kind, const std::function<void()>& pause) {
  kind.one_way = true;
  const size_t bytes = mib << 20;
  const uint64_t steps = rounds + 3;
  const LoopbackCluster cluster(coordinator, shard, JobText(kind, 1, steps));
  Exchange exchange(cluster, 1, bytes / sizeof(float), steps, kind);
  RawTcp tcp(bytes);
  std::vector<double> push;
  std::vector<double> pull;
  std::vector<double> raw_push;
  std::vector<double> raw_pull;
  for (size_t round = 0; round < rounds + 2; ++round) {
    pause();
    const auto [pushed, pulled] = exchange.Round();
    pause();
    const RawTcp::Times moved = tcp.Round();
    if (round < 2) continue;  // memory is touched for the first time
    push.push_back(pushed);
    pull.push_back(pulled);
    raw_push.push_back(moved.push);
    raw_pull.push_back(moved.copied);
  }
  std::printf("%20zu %10.3f %10.3f %10.3f %10.3f %12.2f %12.2f\n", mib, 1e3 * Median(push),
              1e3 * Median(pull), 1e3 * Median(raw_push), 1e3 * Median(raw_pull),
              Median(raw_push) / Median(push), Median(raw_pull) / Median(pull));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  CLI::App app("What moving a model through a parameter shard costs.", "exchange_benchmark");
  std::string coordinator;
  std::string shard;
  std::vector<size_t> sizes = {4, 16, 64};
  size_t rounds = 30;
  double rest = 0;
  app.add_option("coordinator", coordinator, "The program")->required();
  app.add_option("shard", shard, "The program")->required();
  app.add_option("--mib", sizes, "Of parameters")->delimiter(',');
  app.add_option("--rounds", rounds, "Of each measurement; medians are told");
  app.add_option("--rest", rest, "Milliseconds of sleep before each round");
  Kind kind;
  app.add_flag("--tcp", kind.tcp, "As between hosts: direct connections, no shared memory");
  app.add_flag("--grpc", kind.grpc, "All calls by gRPC");
  app.add_flag("--tls", kind.tls, "With --tcp or --grpc: encrypted");
  app.add_flag("--adam", kind.adam, "Instead of SGD");
  app.add_flag("--rows", kind.rows, "Gradients as an embedding's: every fiftieth KiB of floats");
  app.add_flag("--outside", kind.outside, "The training loop's tensors are its own");
  CLI11_PARSE(app, argc, argv);

  const uint64_t steps = rounds + 3;
  const bool over_tcp = kind.tcp || kind.grpc;
  const auto sleep = [&] { absl::SleepFor(absl::Milliseconds(rest)); };
  std::printf("%6s %10s %10s %10s %10s %10s", "MiB", "push ms", "pull ms", "round ms", "plain ms",
              "x plain");
  if (over_tcp) std::printf(" %10s %10s", "TCP ms", "of TCP");
  std::printf("\n");
  for (const size_t mib : sizes) {
    const size_t bytes = mib << 20;
    const LoopbackCluster cluster(coordinator, shard, JobText(kind, 1, steps));
    Exchange exchange(cluster, 1, bytes / sizeof(float), steps, kind);
    PlainLoop plain(bytes / sizeof(float), kind);
    std::optional<RawTcp> tcp;
    if (over_tcp) tcp.emplace(bytes);
    std::vector<double> push;
    std::vector<double> pull;
    std::vector<double> both;
    std::vector<double> loop;
    std::vector<double> raw;
    for (size_t round = 0; round < rounds + 2; ++round) {
      sleep();
      const auto [pushed, pulled] = exchange.Round();
      sleep();
      const double looped = SecondsOf([&] { plain.Round(); });
      const RawTcp::Times moved = over_tcp ? tcp->Round() : RawTcp::Times();
      if (round < 2) continue;  // memory is touched for the first time
      push.push_back(pushed);
      pull.push_back(pulled);
      both.push_back(pushed + pulled);
      loop.push_back(looped);
      raw.push_back(moved.push + moved.pull);
    }
    std::printf("%6zu %10.3f %10.3f %10.3f %10.3f %10.2f", mib, 1e3 * Median(push),
                1e3 * Median(pull), 1e3 * Median(both), 1e3 * Median(loop),
                Median(both) / Median(loop));
    if (over_tcp) std::printf(" %10.3f %10.2f", 1e3 * Median(raw), Median(raw) / Median(both));
    std::printf("\n");
    std::fflush(stdout);
  }
  if (over_tcp) {
    std::printf("\n%20s %10s %10s %10s %10s %12s %12s\n", "one way, MiB", "push ms", "pull ms",
                "TCP push", "TCP pull", "push of TCP", "pull of TCP");
    for (const size_t mib : sizes) CompareOneWay(coordinator, shard, mib, rounds, kind, sleep);
  }
  std::printf("\n%20s %10s %10s %10s\n", "small ones", "push ms", "pull ms", "round ms");
  for (const size_t tensors : {1, 1000}) {
    const LoopbackCluster cluster(coordinator, shard, JobText(kind, 1, steps));
    Exchange exchange(cluster, tensors, 1024, steps, kind);
    std::vector<double> push;
    std::vector<double> pull;
    std::vector<double> both;
    for (size_t round = 0; round < rounds + 2; ++round) {
      sleep();
      const auto [pushed, pulled] = exchange.Round();
      push.push_back(pushed);
      pull.push_back(pulled);
      both.push_back(pushed + pulled);
    }
    std::printf("%12zu x 4 KiB %10.3f %10.3f %10.3f\n", tensors, 1e3 * Median(push),
                1e3 * Median(pull), 1e3 * Median(both));
    std::fflush(stdout);
  }
  std::printf("\n%20s %12s %12s %12s\n", "GB/s reduced, MiB", "1 worker", "4 workers",
              "of 1 worker");
  for (const size_t mib : sizes) {
    const double one = ReducedBytes(coordinator, shard, 1, mib << 20, rounds, kind);
    const double four = ReducedBytes(coordinator, shard, 4, mib << 20, rounds, kind);
    std::printf("%20zu %12.2f %12.2f %12.2f\n", mib, one, four, four / one);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
