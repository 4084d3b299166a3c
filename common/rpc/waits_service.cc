#include "common/rpc/waits_service.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

void WaitsService::SetWho(const WaitsReply& who) {
  absl::MutexLock lock(&mu_);
  who_ = who;
}

void WaitsService::SetSource(Source source) {
  absl::MutexLock lock(&mu_);
  source_.swap(source);
}

grpc::ServerUnaryReactor* WaitsService::WhatFor(grpc::CallbackServerContext* context,
                                                const WaitsRequest* request, WaitsReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  grpc::Status status;
  {
    absl::MutexLock lock(&mu_);
    if (!request->job().empty() && request->job() != who_.job()) {
      status = {grpc::StatusCode::NOT_FOUND, absl::StrCat("this process is of job '", who_.job(),
                                                          "', not of '", request->job(), "'")};
    } else {
      *reply = who_;
      if (source_) source_(*reply);
    }
  }
  reactor->Finish(status);
  return reactor;
}

}  // namespace parley
