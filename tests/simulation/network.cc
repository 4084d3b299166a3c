#include "tests/simulation/network.h"

#include <algorithm>
#include <optional>

#include "client/forwarding_coordinator.h"
#include "common/shared_memory/local_slices.h"
#include "common/shared_memory/segment_heap.h"

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

// What a process lends, as others see it: at addresses of their own (as LocalLink and LocalGuest).
class LentMemory {
 public:
  SegmentHeap& heap() { return heap_; }

  // The slice for a reader; as it is where it is not lent.
  TensorSlice Show(const TensorSlice& slice) {
    LocalSlice shown;
    const std::optional<SegmentHeap::Place> place = ShowSlice(slice, heap_, shown);
    if (!place.has_value()) return slice;
    std::shared_ptr<const MemorySegment>& segment = segments_[place->segment];
    if (segment == nullptr) segment = *MemorySegment::OfPeer(place->memory->fd());
    return *SeenSlice(shown, segment);
  }

 private:
  SegmentHeap heap_{0};
  PeerSegments segments_;
};

class SimulatedShard final : public ShardClient {
 public:
  // lent: nullptr where the shard is on another machine.
  SimulatedShard(Network* network, std::shared_ptr<Process> from, std::string to,
                 std::shared_ptr<LentMemory> lent, bool joins)
      : network_(network),
        from_(std::move(from)),
        to_(std::move(to)),
        lent_(std::move(lent)),
        joins_(joins) {}

  bool ReadsLentMemory() const override { return lent_ != nullptr; }
  // Not true of it: so a shard sees calls that have overtaken each other.
  bool KeepsOrder() const override { return lent_ != nullptr; }
  bool JoinsCalls() const override { return joins_; }

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
    TensorPush sent = push;
    if (lent_ != nullptr) {
      for (TensorSlice& slice : sent.slices) slice = lent_->Show(slice);
    }
    network_->Call<ShardClient>(from_, to_, &ShardClient::PushTensors, sent, deadline,
                                std::move(done));
  }

 private:
  Network* const network_;
  const std::shared_ptr<Process> from_;
  const std::string to_;
  const std::shared_ptr<LentMemory> lent_;
  const bool joins_;
};

class SimulatedConnector final : public Connector {
 public:
  SimulatedConnector(Network* network, std::shared_ptr<Process> process,
                     Network::Transport transport)
      : network_(network),
        process_(std::move(process)),
        lent_(transport == Network::Transport::kShared ? std::make_shared<LentMemory>() : nullptr),
        joins_(transport == Network::Transport::kJoined) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return std::make_shared<SimulatedCoordinator>(network_, process_, address);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<SimulatedShard>(network_, process_, address, lent_, joins_);
  }
  MemorySource* memory() override { return lent_ == nullptr ? nullptr : &lent_->heap(); }

 private:
  Network* const network_;
  const std::shared_ptr<Process> process_;
  const std::shared_ptr<LentMemory> lent_;
  const bool joins_;
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

std::unique_ptr<Connector> Network::MakeConnector(const std::shared_ptr<Process>& process,
                                                  Transport transport) {
  return std::make_unique<SimulatedConnector>(this, process, transport);
}

}  // namespace parley
