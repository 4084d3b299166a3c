// For builds with ThreadSanitizer only: makes the order that gRPC's completion queues make visible
// to it.
//
// Whoever starts a batch of operations hands all that it has written over to the thread that later
// takes the batch's tag out of the queue: a caller to the thread that brings the answer, a service
// that finishes a call to the thread that cleans up after it. gRPC does that with atomics, in code
// that is not instrumented. As in absl_mutex.cc the definitions here come before the library's.
#include <dlfcn.h>
#include <grpc/grpc.h>

extern "C" {
void __tsan_acquire(void* address);  // NOLINT
void __tsan_release(void* address);  // NOLINT

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  static const auto library =
      reinterpret_cast<decltype(&grpc_call_start_batch)>(dlsym(RTLD_NEXT, "grpc_call_start_batch"));
  __tsan_release(tag);
  return library(call, ops, nops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static const auto library = reinterpret_cast<decltype(&grpc_completion_queue_next)>(
      dlsym(RTLD_NEXT, "grpc_completion_queue_next"));
  const grpc_event event = library(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}
}  // extern "C"
