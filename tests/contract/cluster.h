#ifndef PARLEY_TESTS_CONTRACT_CLUSTER_H_
#define PARLEY_TESTS_CONTRACT_CLUSTER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/connector.h"
#include "client/session.h"
#include "common/shared_memory/memory_source.h"
#include "proto/job.pb.h"
#include "tests/contract/test_coordinator.h"
#include "tests/contract/test_shard.h"

namespace parley {

// How members reach each other: one of the implementations that the contract suite holds to the
// same contract.
class Transport {
 public:
  virtual ~Transport() = default;
  // Makes them reachable; they must outlive the transport. Returns host:port.
  virtual std::string Serve(CoordinatorClient& coordinator) = 0;
  virtual std::string Serve(LockedShard& shard) = 0;
  // From now on nobody reaches the coordinator.
  virtual void CutCoordinator() = 0;
  virtual Connector& connector() = 0;
  // Where the shards' values are to lie; nullptr: anywhere.
  virtual std::shared_ptr<MemorySource> shard_memory() { return nullptr; }
};

std::unique_ptr<Transport> MakeInProcessTransport();
std::unique_ptr<Transport> MakeGrpcTransport();
// Direct connections from when they stand; encrypted.
std::unique_ptr<Transport> MakeDirectTransport();
std::unique_ptr<Transport> MakeDirectTlsTransport();
// Shared memory where that can be, else gRPC.
std::unique_ptr<Transport> MakeLocalTransport();

// The text of a job file (proto/job.proto) that the contract's tests run; `more` is added to it.
JobConfig ContractJob(int workers, int shards, const std::string& more);

// A coordinator and shards that have joined it, over one transport.
class LocalCluster {
 public:
  LocalCluster(std::unique_ptr<Transport> transport, const JobConfig& job);
  ~LocalCluster();

  const JobConfig& job() const { return job_; }
  Transport& transport() { return *transport_; }
  const std::string& coordinator_address() const { return coordinator_address_; }
  // From now on nobody reaches the coordinator.
  void CutCoordinator();
  // Where values come from when the job goes back. Before any worker joins.
  void set_checkpoint(TestShard::Checkpoint checkpoint) { checkpoint_ = std::move(checkpoint); }
  // The job goes back to the checkpoint of this version. lost: a shard that another one replaces,
  // at another address; else all keep their processes. Returns when the shards have heard of it.
  // Not while others ask for shards.
  void GoBack(uint64_t version, const DataPosition& position, std::optional<uint32_t> lost);
  // By ordinal.
  TestShard& shard(uint32_t ordinal);
  TestCoordinator& coordinator() { return coordinator_; }
  const std::string& shard_address(uint32_t ordinal) const { return shard_addresses_.at(ordinal); }

  // The machines on which the workers of RunWorkers say they are, by number; none: this one.
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }
  // Runs a worker on each thread: joins and calls `work`. `connector` may decorate the transport's.
  using Work = std::function<void(Session& session)>;
  void RunWorkers(int workers, const Work& work);
  void RunWorkers(int workers, const Work& work, Connector& connector);

  GetStatusReply Status();

 private:
  std::unique_ptr<TestShard> MakeShard(uint64_t incarnation);
  // `tell` lets the coordinator know of the new one.
  void ReplaceShard(uint32_t ordinal,
                    const std::function<void(const TestCoordinator::NewShard&)>& tell);

  const JobConfig job_;
  std::shared_ptr<MemorySource> memory_;  // before the shards, which use it
  TestShard::Checkpoint checkpoint_;
  TestCoordinator coordinator_;
  std::vector<std::unique_ptr<TestShard>> shards_;
  std::vector<std::unique_ptr<TestShard>> lost_shards_;
  std::vector<std::string> shard_addresses_;  // by ordinal
  std::vector<std::string> hosts_;
  std::string coordinator_address_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_CLUSTER_H_
