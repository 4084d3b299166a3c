#ifndef PARLEY_TESTS_SIMULATION_NETWORK_H_
#define PARLEY_TESTS_SIMULATION_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/connector.h"
#include "common/replies.h"
#include "tests/simulation/fault_coverage.h"
#include "tests/simulation/process.h"

namespace parley {

// How often what goes wrong with a call, and how long messages take.
struct NetworkFaults {
  double lose_request = 0;
  double lose_reply = 0;
  double duplicate = 0;  // the request comes twice, the second time up to `late` later
  double slow = 0;       // a message takes up to `late`
  absl::Duration usual = absl::Milliseconds(1);
  absl::Duration late = absl::Seconds(2);
};

// What happened, for the proof that it did.
struct NetworkCounts {
  uint64_t calls = 0;
  uint64_t requests_lost = 0;
  uint64_t replies_lost = 0;
  uint64_t duplicated = 0;
  uint64_t slowed = 0;
  uint64_t overtaken = 0;  // by a later request of the same process to the same one
  uint64_t cut = 0;        // by a partition
  uint64_t refused = 0;
};

// Carries the calls of simulated processes: a request to whoever serves an address, its reply back,
// each as an event of its own that may be late, lost, or come twice, as between processes whose
// connections break and are made again. A caller hears of a lost message by Unavailable or by its
// deadline.
class Network {
 public:
  Network(World* world, NetworkFaults faults) : world_(world), faults_(faults) {}

  // From now on `process` answers at its address. The servers must outlive it or its last call.
  void Serve(const std::shared_ptr<Process>& process,
             std::shared_ptr<CoordinatorClient> coordinator);
  void Serve(const std::shared_ptr<Process>& process, std::shared_ptr<ShardClient> shard);
  void Unserve(const std::string& address) { servers_.erase(address); }

  // No message passes between the two, either way, for so long.
  void Cut(const std::string& a, const std::string& b, absl::Duration how_long);

  // Is told of each fault, and between whom it was.
  using OnFault =
      std::function<void(std::string_view fault, const std::string& from, const std::string& to)>;
  void Tell(OnFault on_fault) { on_fault_ = std::move(on_fault); }

  // What the clients of a process say of their shards.
  enum class Transport {
    kPlain,
    kJoined,  // small slices travel with Complete (ShardClient::JoinsCalls)
    kShared,  // they read what it pushes where it lies
  };
  // The connector of `process`; one for each.
  std::unique_ptr<Connector> MakeConnector(const std::shared_ptr<Process>& process,
                                           Transport transport = Transport::kPlain);

  const NetworkCounts& counts() const { return counts_; }

  // For the clients that MakeConnector gives: calls `method` of whoever serves `to`.
  template <class Client, class Request, class Reply>
  void Call(const std::shared_ptr<Process>& from, const std::string& to,
            void (Client::*method)(const Request&, absl::Time, Done<Reply>), const Request& request,
            absl::Time deadline, Done<Reply> done);

 private:
  struct Server {
    std::weak_ptr<Process> process;
    std::shared_ptr<CoordinatorClient> coordinator;
    std::shared_ptr<ShardClient> shard;
  };
  CoordinatorClient* Find(const Server& server, CoordinatorClient*) const {
    return server.coordinator.get();
  }
  ShardClient* Find(const Server& server, ShardClient*) const { return server.shard.get(); }

  bool IsCut(const std::string& a, const std::string& b);
  absl::Duration Latency(const std::string& from, const std::string& to);
  void Count(uint64_t& count, std::string_view fault, const std::string& from,
             const std::string& to) {
    ++count;
    if (on_fault_) on_fault_(fault, from, to);
  }
  // The number of a request on its way, and that it has come.
  uint64_t Sent(const std::string& from, const std::string& to) { return ++ways_[{from, to}].sent; }
  void Came(const std::string& from, const std::string& to, uint64_t number);

  World* const world_;
  NetworkFaults faults_;
  NetworkCounts counts_;
  OnFault on_fault_;
  struct Way {
    uint64_t sent = 0;
    uint64_t newest = 0;  // that has come
  };
  std::map<std::pair<std::string, std::string>, Way> ways_;
  std::map<std::string, Server> servers_;
  std::map<std::pair<std::string, std::string>, absl::Time> cuts_;  // until when
};

template <class Client, class Request, class Reply>
void Network::Call(const std::shared_ptr<Process>& from, const std::string& to,
                   void (Client::*method)(const Request&, absl::Time, Done<Reply>),
                   const Request& request, absl::Time deadline, Done<Reply> done) {
  if (!from->alive()) return;
  ++counts_.calls;
  // The caller's side: whichever ends the call first, a reply or the deadline.
  struct Open {
    Done<Reply> done;
  };
  auto open = std::make_shared<Open>(Open{std::move(done)});
  const auto end = [from, open](absl::StatusOr<Reply> reply) {
    from->Run([open, reply = std::move(reply)]() mutable {
      if (!open->done) return;
      const Done<Reply> done = std::exchange(open->done, nullptr);
      done(std::move(reply));
    });
  };
  world_->At(from->ToWorld(deadline), [end, to] {
    end(absl::DeadlineExceededError(absl::StrCat(to, " did not answer in time")));
  });
  const auto fail = [this, end, from, to](const char* what) {
    if (world_->Chance(0.5)) return;  // silence: the deadline ends it
    world_->At(world_->now() + Latency(to, from->address()),
               [end, to, what] { end(absl::UnavailableError(absl::StrCat(to, ": ", what))); });
  };

  if (IsCut(from->address(), to)) {
    Count(counts_.cut, kCutOff, from->address(), to);
    return fail("cut off");
  }
  if (world_->Chance(faults_.lose_request)) {
    Count(counts_.requests_lost, kRequestLost, from->address(), to);
    return fail("the request was lost");
  }
  const absl::Duration left = deadline - from->LocalNow();
  const uint64_t number = Sent(from->address(), to);
  const auto deliver = [this, from, to, number, method, request, left, end, fail] {
    Came(from->address(), to, number);
    const auto server = servers_.find(to);
    const auto process = server == servers_.end() ? nullptr : server->second.process.lock();
    if (process == nullptr || !process->alive()) {
      ++counts_.refused;
      return end(absl::UnavailableError(absl::StrCat(to, ": connection refused")));
    }
    process->Run([this, from, to, method, request, left, end, fail, process] {
      const auto found = servers_.find(to);
      Client* const client =
          found == servers_.end() ? nullptr : Find(found->second, static_cast<Client*>(nullptr));
      if (client == nullptr) {
        return end(absl::UnimplementedError(absl::StrCat(to, " does not serve this")));
      }
      Done<Reply> answer = [this, from, to, end, fail](absl::StatusOr<Reply> reply) {
        if (IsCut(from->address(), to)) {
          Count(counts_.cut, kCutOff, to, from->address());
          return fail("cut off");
        }
        if (world_->Chance(faults_.lose_reply)) {
          Count(counts_.replies_lost, kReplyLost, to, from->address());
          return fail("the reply was lost");
        }
        world_->At(world_->now() + Latency(to, from->address()),
                   [end, reply = std::move(reply)] { end(reply); });
      };
      (client->*method)(request, process->LocalNow() + left, std::move(answer));
    });
  };
  world_->At(world_->now() + Latency(from->address(), to), deliver);
  if (world_->Chance(faults_.duplicate)) {
    Count(counts_.duplicated, kDuplicated, from->address(), to);
    world_->At(world_->now() + world_->Between(absl::ZeroDuration(), faults_.late), deliver);
  }
}

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_NETWORK_H_
