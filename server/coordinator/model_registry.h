#ifndef PARLEY_SERVER_COORDINATOR_MODEL_REGISTRY_H_
#define PARLEY_SERVER_COORDINATOR_MODEL_REGISTRY_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// What workers and stages train, and that they all say the same. Owned by CoordinatorCore, under
// its lock.
class ModelRegistry {
 public:
  // `stages`: of each pipeline; 0: there are none.
  explicit ModelRegistry(uint32_t stages) : stages_(stages) {}

  // `who`: for messages. INVALID_ARGUMENT where the model is not usable or differs from what
  // another member registered; the message names the first difference. Repeating it changes
  // nothing.
  absl::Status Register(const Member& who, const RegisterModelRequest& request);

  // A fenced member's word counts no more.
  void Forget(uint64_t member);

  // For the log. Read: `first`, who registered it first.
  void Write(CoordinatorState& state) const;
  void Read(const CoordinatorState& state, const Member& first);

  bool registered(uint64_t member) const { return by_.count(member) != 0; }
  size_t count() const { return by_.size(); }
  uint64_t first() const { return first_.id(); }  // who registered it; 0: nobody yet
  // Valid once somebody has registered.
  const RegisterModelRequest& model() const { return model_; }
  std::vector<TensorSpec> tensors() const;

 private:
  const uint32_t stages_;
  RegisterModelRequest model_;  // without header
  Member first_;                // who registered it
  std::set<uint64_t> by_;       // members
};

// Why two lists of tensors are not alike, in words ("tensor 3 is conv2.weight F32 [16, 8, 3, 3]
// here and ... there"); nothing if they are. Where the model is cut into stages is no difference:
// a checkpoint fits every cut.
std::optional<std::string> Difference(const std::vector<TensorSpec>& here,
                                      const std::vector<TensorSpec>& there);

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_MODEL_REGISTRY_H_
