#ifndef PARLEY_TESTS_CONTRACT_REDUCER_CONTRACT_H_
#define PARLEY_TESTS_CONTRACT_REDUCER_CONTRACT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/reduce/reducer.h"
#include "proto/types.pb.h"

namespace parley {

// One rank of a node group as the suite for reducers sees it: a reducer, and the gradients that it
// adds up, where the suite can read and write them.
class ReducerRank {
 public:
  virtual ~ReducerRank() = default;
  virtual Reducer& reducer() = 0;
  virtual absl::Span<std::byte> gradient(size_t tensor) = 0;
};

// An implementation that the suite holds to the contract.
struct ReducerKind {
  std::string name;
  // Its sums are bitwise those in the order of ranks; else they agree to rounding.
  bool ordered = true;
  bool float64 = true;  // adds up tensors of this type too
  // address: host:port, another one for each.
  std::function<std::unique_ptr<ReducerRank>(const std::string& address,
                                             const std::vector<TensorSpec>& tensors)>
      make;
};

ReducerKind SharedMemoryKind();
// Devices, which are fake, in one order of buckets.
ReducerKind DevicesKind();

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_REDUCER_CONTRACT_H_
