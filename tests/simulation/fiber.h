#ifndef PARLEY_TESTS_SIMULATION_FIBER_H_
#define PARLEY_TESTS_SIMULATION_FIBER_H_

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace parley {

// A function with a stack of its own that can stop in its middle and go on later, on the one thread
// of a simulation: code that waits runs on one. Not thread-safe.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // The body must have ended.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it yields or ends. Not from a fiber.
  void Resume();
  // From the body: back to whoever resumed it.
  void Yield();

  bool ended() const { return ended_; }
  // The one that runs now; null outside.
  static Fiber* Current();

 private:
  static void Enter(unsigned low, unsigned high);
  void SwitchIn();
  void SwitchOut(bool for_ever);

  const std::function<void()> body_;
  const std::unique_ptr<std::byte[]> stack_;
  ucontext_t own_;
  ucontext_t resumer_;
  bool ended_ = false;
  // What the address sanitizer must be told at each switch.
  void* own_shadow_ = nullptr;
  void* resumer_shadow_ = nullptr;
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
};

}  // namespace parley

#endif  // PARLEY_TESTS_SIMULATION_FIBER_H_
