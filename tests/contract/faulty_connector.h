#ifndef PARLEY_TESTS_CONTRACT_FAULTY_CONNECTOR_H_
#define PARLEY_TESTS_CONTRACT_FAULTY_CONNECTOR_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/connector.h"

namespace parley {

// A network that loses requests, loses answers, and delivers twice, one call in five, as its seed
// says. Calls to shards only. Only tests link it.
class FaultyConnector final : public Connector {
 public:
  FaultyConnector(Connector& to, uint64_t seed) : to_(to), random_(seed) {}

  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return to_.ConnectCoordinator(address);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override;

  enum class Fault { kNone, kLoseRequest, kLoseAnswer, kTwice };
  Fault Draw();
  // From now on every call to a shard is answered so.
  void Refuse(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    refusal_ = status;
  }
  absl::Status refusal() const {
    absl::MutexLock lock(&mu_);
    return refusal_;
  }
  int faults() const {
    absl::MutexLock lock(&mu_);
    return faults_;
  }

 private:
  Connector& to_;
  mutable absl::Mutex mu_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  int faults_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_FAULTY_CONNECTOR_H_
