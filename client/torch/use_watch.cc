#include "client/torch/use_watch.h"

#include <utility>

namespace parley {
namespace {

// Callbacks are functions without data.
thread_local UseWatch* of_this_thread = nullptr;

const void* MemoryOf(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

}  // namespace

UseWatch::UseWatch(const std::vector<at::Tensor>& tensors, std::function<void(size_t)> on_use)
    : on_use_(std::move(on_use)) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (const void* const memory = MemoryOf(tensors[i]); memory != nullptr) by_memory_[memory] = i;
  }
  of_this_thread = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&UseWatch::OnOperation)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

UseWatch::~UseWatch() {
  at::removeCallback(handle_);
  of_this_thread = nullptr;
}

std::unique_ptr<at::ObserverContext> UseWatch::OnOperation(const at::RecordFunction& operation) {
  // Backward may run on threads of its own, which inherit callbacks.
  UseWatch* const watch = of_this_thread;
  if (watch == nullptr || watch->by_memory_.empty()) return nullptr;
  for (const c10::IValue& argument : operation.inputs()) watch->Look(argument);
  return nullptr;
}

void UseWatch::Look(const c10::IValue& argument) {
  if (argument.isList()) {
    for (const c10::IValue& each : argument.toListRef()) Look(each);
  } else if (argument.isTensor()) {
    const auto found = by_memory_.find(MemoryOf(argument.toTensor()));
    if (found == by_memory_.end()) return;
    const size_t tensor = found->second;
    by_memory_.erase(found);
    on_use_(tensor);
  }
}

}  // namespace parley
