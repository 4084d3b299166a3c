#ifndef PARLEY_SERVER_PARAMETER_SHARD_FAKE_PEERS_H_
#define PARLEY_SERVER_PARAMETER_SHARD_FAKE_PEERS_H_

// For tests of what a shard's process sends: peers that keep each call until the test answers it.
// Not thread-safe: everything runs on the test's thread.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connector.h"
#include "client/testing/refusing_peers.h"

namespace parley::testing {

template <class Request, class Reply>
struct OpenCall {
  Request request;
  absl::Time deadline;
  Done<Reply> done;
};

// The calls of one method that have come and are not answered.
template <class Request, class Reply>
class Inbox {
 public:
  void Add(const Request& request, absl::Time deadline, Done<Reply> done) {
    calls_.push_back({request, deadline, std::move(done)});
  }
  size_t size() const { return calls_.size(); }
  bool empty() const { return calls_.empty(); }
  const Request& front() const { return calls_.front().request; }
  absl::Time deadline() const { return calls_.front().deadline; }
  // Takes the first call out, and answers it.
  void Answer(absl::StatusOr<Reply> reply = Reply()) {
    OpenCall<Request, Reply> call = std::move(calls_.front());
    calls_.pop_front();
    call.done(std::move(reply));
  }
  // The peer goes without an answer. What has called may live by its open call alone.
  void Drop() { std::exchange(calls_, {}); }

 private:
  std::deque<OpenCall<Request, Reply>> calls_;
};

class FakeShard final : public RefusingShard {
 public:
  Inbox<CloseRequest, CloseReply> closes;
  Inbox<DecideRequest, DecideReply> decides;
  Inbox<AdvanceRequest, AdvanceReply> advances;

  void Close(const CloseRequest& request, absl::Time deadline, Done<CloseReply> done) override {
    closes.Add(request, deadline, std::move(done));
  }
  void Decide(const DecideRequest& request, absl::Time deadline, Done<DecideReply> done) override {
    decides.Add(request, deadline, std::move(done));
  }
  void Advance(const AdvanceRequest& request, absl::Time deadline,
               Done<AdvanceReply> done) override {
    advances.Add(request, deadline, std::move(done));
  }
};

class FakeCoordinator final : public RefusingCoordinator {
 public:
  Inbox<ReportReadyRequest, ReportReadyReply> ready;
  Inbox<ReportVerdictsRequest, ReportVerdictsReply> verdicts;
  Inbox<ReportCheckpointFileRequest, ReportCheckpointFileReply> files;

  void ReportReady(const ReportReadyRequest& request, absl::Time deadline,
                   Done<ReportReadyReply> done) override {
    ready.Add(request, deadline, std::move(done));
  }
  void ReportVerdicts(const ReportVerdictsRequest& request, absl::Time deadline,
                      Done<ReportVerdictsReply> done) override {
    verdicts.Add(request, deadline, std::move(done));
  }
  void ReportCheckpointFile(const ReportCheckpointFileRequest& request, absl::Time deadline,
                            Done<ReportCheckpointFileReply> done) override {
    files.Add(request, deadline, std::move(done));
  }
};

// Shards by address, made when they are first asked for.
class FakeConnector final : public Connector {
 public:
  FakeConnector() = default;
  // An open call holds the peer that holds it.
  ~FakeConnector() override {
    for (const auto& [address, shard] : shards_) {
      shard->closes.Drop();
      shard->decides.Drop();
      shard->advances.Drop();
    }
    coordinator->ready.Drop();
    coordinator->verdicts.Drop();
    coordinator->files.Drop();
  }

  FakeShard& shard(const std::string& address) { return *Find(address); }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    ++connections;
    return Find(address);
  }
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return coordinator;
  }

  const std::shared_ptr<FakeCoordinator> coordinator = std::make_shared<FakeCoordinator>();
  int connections = 0;

 private:
  std::shared_ptr<FakeShard> Find(const std::string& address) {
    std::shared_ptr<FakeShard>& shard = shards_[address];
    if (shard == nullptr) shard = std::make_shared<FakeShard>();
    return shard;
  }
  std::map<std::string, std::shared_ptr<FakeShard>> shards_;
};

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_FAKE_PEERS_H_
