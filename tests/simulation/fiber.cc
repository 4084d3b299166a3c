#include "tests/simulation/fiber.h"

#include <cstdint>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define PARLEY_START_SWITCH(save, stack, bytes) __sanitizer_start_switch_fiber(save, stack, bytes)
#define PARLEY_FINISH_SWITCH(saved, stack, bytes) \
  __sanitizer_finish_switch_fiber(saved, stack, bytes)
#else
#define PARLEY_START_SWITCH(save, stack, bytes)
#define PARLEY_FINISH_SWITCH(saved, stack, bytes)
#endif

namespace parley {
namespace {

constexpr size_t kStackBytes = 512 << 10;
Fiber* current = nullptr;

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(new std::byte[kStackBytes]) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  // makecontext passes ints only.
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::Enter), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(self >> 32));
}

Fiber::~Fiber() = default;

Fiber* Fiber::Current() { return current; }

void Fiber::Enter(unsigned low, unsigned high) {
  auto* const self = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);  // NOLINT
  self->SwitchIn();
  self->body_();
  self->ended_ = true;
  self->SwitchOut(/*for_ever=*/true);
}

void Fiber::SwitchIn() {
  PARLEY_FINISH_SWITCH(own_shadow_, &resumer_stack_, &resumer_stack_bytes_);
}

void Fiber::SwitchOut([[maybe_unused]] bool for_ever) {
  PARLEY_START_SWITCH(for_ever ? nullptr : &own_shadow_, resumer_stack_, resumer_stack_bytes_);
  swapcontext(&own_, &resumer_);
}

void Fiber::Resume() {
  current = this;
  PARLEY_START_SWITCH(&resumer_shadow_, stack_.get(), kStackBytes);
  swapcontext(&resumer_, &own_);
  PARLEY_FINISH_SWITCH(resumer_shadow_, nullptr, nullptr);
  current = nullptr;
}

void Fiber::Yield() {
  SwitchOut(/*for_ever=*/false);
  SwitchIn();
}

}  // namespace parley
