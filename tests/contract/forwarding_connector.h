#ifndef PARLEY_TESTS_CONTRACT_FORWARDING_CONNECTOR_H_
#define PARLEY_TESTS_CONTRACT_FORWARDING_CONNECTOR_H_

#include <memory>
#include <string>

#include "client/connector.h"

namespace parley {

// A Connector that makes all its connections by another one; who derives changes what it wants to.
class ForwardingConnector : public Connector {
 public:
  explicit ForwardingConnector(Connector& to) : to_(to) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return to_.ConnectCoordinator(address);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return to_.ConnectShard(address);
  }
  MemorySource* memory() override { return to_.memory(); }
  Visitors* visitors() override { return to_.visitors(); }

 private:
  Connector& to_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_FORWARDING_CONNECTOR_H_
