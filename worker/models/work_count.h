#ifndef PARLEY_WORKER_MODELS_WORK_COUNT_H_
#define PARLEY_WORKER_MODELS_WORK_COUNT_H_

#include <cstdint>

namespace parley {

// Multiplications of the linear and convolution layers whose forward runs on this thread while this
// lives: about what they cost, to cut a model into parts that take as long as each other. The
// innermost one counts.
class WorkCount {
 public:
  WorkCount();
  ~WorkCount();
  WorkCount(const WorkCount&) = delete;
  WorkCount& operator=(const WorkCount&) = delete;

  uint64_t multiplications() const { return multiplications_; }

  // For layers.
  static void Add(uint64_t multiplications);

 private:
  WorkCount* const outer_;
  uint64_t multiplications_ = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_WORK_COUNT_H_
