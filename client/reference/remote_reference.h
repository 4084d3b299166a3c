#ifndef PARLEY_CLIENT_REFERENCE_REMOTE_REFERENCE_H_
#define PARLEY_CLIENT_REFERENCE_REMOTE_REFERENCE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reference/reference_host.h"
#include "client/reference/remote_value.h"
#include "common/replies.h"

namespace parley {

// A value of this process or of another, held as long as a copy of this exists. Made by
// RemoteAgent; may outlive it, and then fetches nothing. Thread-safe; copying is cheap.
class RemoteReference {
 public:
  RemoteReference() = default;  // of nothing

  bool valid() const { return hold_ != nullptr; }

  // The value, from where it lives. The error that stands in its place; Aborted: its owner was
  // restarted, or has not been heard of for a lease; FailedPrecondition: its step has ended, or
  // this is of nothing; DeadlineExceeded; Cancelled: the agent has ended.
  absl::StatusOr<ValuePtr> Fetch(absl::Time deadline) const;
  // The same without waiting: `done` runs on any thread, once.
  void Fetch(absl::Time deadline, Done<ValuePtr> done) const;

  // Ok, or why it can be used no more, with the codes of Fetch. Asks nobody.
  absl::Status status() const;

 private:
  friend class RemoteAgent;

  // Gives the handle back when the last copy goes.
  struct Hold {
    Hold(std::shared_ptr<ReferenceHost> on, ReferenceSpace::Handle of)
        : host(std::move(on)), handle(of) {}
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    const std::shared_ptr<ReferenceHost> host;
    const ReferenceSpace::Handle handle;
  };

  // Takes the handle.
  RemoteReference(std::shared_ptr<ReferenceHost> host, ReferenceSpace::Handle handle)
      : hold_(std::make_shared<const Hold>(std::move(host), handle)) {}

  std::shared_ptr<const Hold> hold_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REMOTE_REFERENCE_H_
