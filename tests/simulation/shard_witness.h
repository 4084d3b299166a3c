#ifndef PARLEY_TESTS_SIMULATION_SHARD_WITNESS_H_
#define PARLEY_TESTS_SIMULATION_SHARD_WITNESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/shard_client.h"
#include "proto/parameter_shard.pb.h"

namespace parley {

// What checks of a simulated job hear of a shard's core, before the network may lose it. The first
// argument is the shard's name.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;

  // Answers that are OK.
  virtual void OnPush(const std::string&, const PushRequest&, const PushReply&) {}
  virtual void OnComplete(const std::string&, const CompleteRequest&, const CompleteReply&) {}
  virtual void OnEnter(const std::string&, const EnterRequest&, const EnterReply&) {}
  virtual void OnAdvance(const std::string&, const AdvanceRequest&) {}
  virtual void OnClose(const std::string&, const CloseRequest&) {}
  virtual void OnPull(const std::string&, const PullRequest&) {}

  // A call that may be parked: when it comes, with a number of its own, and when it is answered,
  // well or not.
  enum class Verb { kComplete, kEnter, kPull };
  virtual void OnBegin(const std::string&, uint64_t /*call*/, Verb, const PullRequest*) {}
  virtual void OnEnd(const std::string&, uint64_t /*call*/) {}
  // A call has been made and all that it led to has been answered.
  virtual void AfterCall(const std::string&) {}
};

// `shard` as it is to be served. The observers must outlive it.
std::shared_ptr<ShardClient> Witnessed(std::string name, std::shared_ptr<ShardClient> shard,
                                       std::vector<ShardObserver*> observers);

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_SHARD_WITNESS_H_
