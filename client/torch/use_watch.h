#ifndef PARLEY_CLIENT_TORCH_USE_WATCH_H_
#define PARLEY_CLIENT_TORCH_USE_WATCH_H_

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace parley {

// Tells when LibTorch is about to read one of some tensors for the first time: before an operation
// of this thread runs that has it, or a view of it, among its arguments. So forward of any module,
// a scripted one too, can wait for each layer's parameters where it needs them, though LibTorch's
// modules have no hooks. (at::RecordFunction, which LibTorch's profilers are made with, costs about
// a microsecond for each operation while it is on.) What reads memory without an operation of
// LibTorch, by data_ptr(), is not seen.
//
// Made, used and destroyed by one thread, which has one at a time.
class UseWatch {
 public:
  // on_use(i) runs inside the operation, once for each tensors[i]; it must not throw nor call
  // LibTorch. The tensors must outlive the watch. `tensors` without memory are never used.
  UseWatch(const std::vector<at::Tensor>& tensors, std::function<void(size_t)> on_use);
  ~UseWatch();
  UseWatch(const UseWatch&) = delete;
  UseWatch& operator=(const UseWatch&) = delete;

  // How many have not been used yet.
  size_t unused() const { return by_memory_.size(); }

 private:
  static std::unique_ptr<at::ObserverContext> OnOperation(const at::RecordFunction& operation);
  void Look(const c10::IValue& argument);

  const std::function<void(size_t)> on_use_;
  std::unordered_map<const void*, size_t> by_memory_;  // those that are not used yet
  at::CallbackHandle handle_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_TORCH_USE_WATCH_H_
