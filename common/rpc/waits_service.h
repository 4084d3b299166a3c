#ifndef PARLEY_COMMON_RPC_WAITS_SERVICE_H_
#define PARLEY_COMMON_RPC_WAITS_SERVICE_H_

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/waits.grpc.pb.h"

namespace parley {

// Tells what this process waits for, from wherever the process keeps that. Every daemon serves it
// from its start, and sets the source once there is one. Thread-safe.
class WaitsService final : public Waits::CallbackService {
 public:
  // Who this process is; `waits` and `step` are the source's.
  void SetWho(const WaitsReply& who);

  // Adds to the reply. Runs on gRPC's threads, one call at a time; must not wait for anything but
  // short locks. When SetSource returns the former source does not run any more.
  using Source = std::function<void(WaitsReply& reply)>;
  void SetSource(Source source);

  grpc::ServerUnaryReactor* WhatFor(grpc::CallbackServerContext* context,
                                    const WaitsRequest* request, WaitsReply* reply) override;

 private:
  absl::Mutex mu_;
  WaitsReply who_ ABSL_GUARDED_BY(mu_);
  Source source_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_COMMON_RPC_WAITS_SERVICE_H_
