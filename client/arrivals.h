#ifndef PARLEY_CLIENT_ARRIVALS_H_
#define PARLEY_CLIENT_ARRIVALS_H_

#include <cstddef>
#include <vector>

#include "client/slice_layout.h"

namespace parley {

// Which values of a pull are here: of each tensor, until where, from its beginning. Slices come in
// any order, each once. A ParameterPuller's; the training thread's.
class Arrivals {
 public:
  explicit Arrivals(const SliceLayout& layout);

  // Of another pull: nothing is here.
  void Begin();
  void Add(const PlacedSlice& slice);

  // Of a tensor that has no slices: true.
  bool HasAll(size_t tensor) const {
    return tensors_[tensor].first == tensors_[tensor].ends.size();
  }
  // Its first `bytes` bytes.
  bool HasUntil(size_t tensor, size_t bytes) const;

 private:
  struct Tensor {
    std::vector<size_t> ends;   // of its slices, in bytes, in order
    std::vector<bool> is_here;  // each slice
    size_t first = 0;           // that is not
  };
  std::vector<Tensor> tensors_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_ARRIVALS_H_
