#include "tests/simulation/network.h"

#include <algorithm>

#include "client/forwarding_coordinator.h"

namespace parley {
namespace {

class SimulatedCoordinator final : public ForwardingCoordinator<SimulatedCoordinator> {
 public:
  SimulatedCoordinator(Network* network, std::shared_ptr<Process> from, std::string to)
      : network_(network), from_(std::move(from)), to_(std::move(to)) {}

  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
               absl::Time deadline, Done<Reply> done) {
    network_->Call<CoordinatorClient>(from_, to_, method, request, deadline, std::move(done));
  }

 private:
  Network* const network_;
  const std::shared_ptr<Process> from_;
  const std::string to_;
};

class SimulatedShard final : public ShardClient {
 public:
  SimulatedShard(Network* network, std::shared_ptr<Process> from, std::string to)
      : network_(network), from_(std::move(from)), to_(std::move(to)) {}

#define PARLEY_CARRY(Method)                                                                 \
  void Method(const Method##Request& request, absl::Time deadline, Done<Method##Reply> done) \
      override {                                                                             \
    network_->Call<ShardClient>(from_, to_, &ShardClient::Method, request, deadline,         \
                                std::move(done));                                            \
  }
  PARLEY_CARRY(Initialize)
  PARLEY_CARRY(Push)
  PARLEY_CARRY(Complete)
  PARLEY_CARRY(Close)
  PARLEY_CARRY(Decide)
  PARLEY_CARRY(Advance)
  PARLEY_CARRY(Enter)
  PARLEY_CARRY(Pull)
  PARLEY_CARRY(WhyFailed)
#undef PARLEY_CARRY
  // As gRPC does it: what is on its way is the sender's memory, and arrives as what that is by
  // then.
  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    network_->Call<ShardClient>(from_, to_, &ShardClient::PushTensors, push, deadline,
                                std::move(done));
  }

 private:
  Network* const network_;
  const std::shared_ptr<Process> from_;
  const std::string to_;
};

class SimulatedConnector final : public Connector {
 public:
  SimulatedConnector(Network* network, std::shared_ptr<Process> process)
      : network_(network), process_(std::move(process)) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return std::make_shared<SimulatedCoordinator>(network_, process_, address);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<SimulatedShard>(network_, process_, address);
  }

 private:
  Network* const network_;
  const std::shared_ptr<Process> process_;
};

}  // namespace

void Network::Serve(const std::shared_ptr<Process>& process,
                    std::shared_ptr<CoordinatorClient> coordinator) {
  servers_[process->address()] = {process, std::move(coordinator), nullptr};
}

void Network::Serve(const std::shared_ptr<Process>& process, std::shared_ptr<ShardClient> shard) {
  servers_[process->address()] = {process, nullptr, std::move(shard)};
}

void Network::Cut(const std::string& a, const std::string& b, absl::Duration how_long) {
  absl::Time& until = cuts_[std::minmax(a, b)];
  until = std::max(until, world_->now() + how_long);
}

bool Network::IsCut(const std::string& a, const std::string& b) {
  const auto found = cuts_.find(std::minmax(a, b));
  return found != cuts_.end() && world_->now() < found->second;
}

void Network::Came(const std::string& from, const std::string& to, uint64_t number) {
  uint64_t& newest = ways_[{from, to}].newest;
  if (number < newest) Count(counts_.overtaken, kOvertaken, from, to);
  newest = std::max(newest, number);
}

absl::Duration Network::Latency(const std::string& from, const std::string& to) {
  if (world_->Chance(faults_.slow)) {
    Count(counts_.slowed, kLate, from, to);
    return world_->Between(faults_.usual, faults_.late);
  }
  return world_->Between(faults_.usual / 10, faults_.usual);
}

std::unique_ptr<Connector> Network::MakeConnector(const std::shared_ptr<Process>& process) {
  return std::make_unique<SimulatedConnector>(this, process);
}

}  // namespace parley
