#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_SPACE_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/reference/reference_holder.h"
#include "client/reference/reference_id.h"
#include "client/reference/reference_owner.h"
#include "client/reference/remote_value.h"
#include "common/replies.h"
#include "proto/remote_reference.pb.h"

namespace parley {

// All references of one process: the values that it owns (ReferenceOwner), what it holds of others
// (ReferenceHolder), and the calls between, in which references are handed over. The protocol is
// docs/remote_references.md.
//
// A plain state machine: no threads, clock, sockets, or functions that run. Whoever owns it calls
// it under one lock, sends what TakeOutgoing gives, runs what TakeRuns gives, and lets `replies`
// run after the lock. Each method may make new ones of both.
class ReferenceSpace {
 public:
  struct Options {
    std::string job;
    uint64_t incarnation = 0;  // random, drawn when the process starts
    std::string address;       // host:port, where this process serves RemoteReferences
    absl::Duration lease = absl::Seconds(10);     // that it grants
    double margin = 0.125;                        // of a lease, kept back by who holds it
    absl::Duration patience = absl::Seconds(10);  // with a first connection
    // Of one attempt of a message; of a Call or Fetch, the owner's lease where that is longer.
    absl::Duration attempt = absl::Seconds(5);
    absl::Duration retry = absl::Milliseconds(20);
    // What is to be dropped waits so long for more of it: each Drop is a message.
    absl::Duration gather = absl::ZeroDuration();
    std::function<uint64_t()> draw_session;  // a random number, never 0
  };
  // A reference as this process has it: its own value, or a fork. 0 is none.
  using Handle = uint64_t;
  using Then = ReferenceOwner::Then;
  // Ok: the callee has the call and holds its arguments. Else it may not have come there, and will
  // not any more; of Cancelled this process has given it up.
  using Answered = std::function<void(const absl::Status&)>;

  explicit ReferenceSpace(Options options, ReferenceOwner::Observer observer = {});

  // --- For the user
  // --------------------------------------------------------------------------------------------------
  // A Handle is held once by whoever gets it, and once more for each Copy; Drop gives one back.

  // A value of this process.
  Handle Make(ValuePtr value, const ReferenceScope& scope);
  // Before the first Call of an address, which stays connected until the process there has gone or
  // was not heard of for a lease. Unavailable: nobody answers there.
  void Connect(const std::string& address, absl::Time now, Replies& replies, Then then);
  // Has the process at `address` run `function`; the result is there at once, as a reference. The
  // arguments stay the caller's: the callee gets forks of its own. send_ahead: their values go with
  // the call where they are this process's and are there. `answered` is told once, as a reply, but
  // not of an error that Call gives; may be empty. FailedPrecondition: not connected; the status of
  // an argument that can be used no more.
  absl::StatusOr<Handle> Call(const std::string& address, const std::string& function,
                              absl::Span<const Handle> arguments, const ReferenceScope& scope,
                              bool send_ahead, absl::Time now, Replies& replies,
                              Answered answered = {});
  // The value, from where it lives. The error that stands in its place; Aborted: its owner was
  // restarted, or has not been heard of for a lease; FailedPrecondition: its step has ended;
  // DeadlineExceeded.
  void Fetch(Handle handle, CallTime time, Replies& replies, Done<FetchedValue> done);
  Handle Copy(Handle handle);
  void Drop(Handle handle, absl::Time now, Replies& replies);
  // Frees every value of this attempt and of all before it, gives up the forks of such values, and
  // refuses what comes of them later.
  void EndStep(const StepScope& scope, absl::Time now, Replies& replies);
  // Tells all owners that nothing is held any more: for the end of the process.
  void LeaveAll(absl::Time now, Replies& replies) { holder_.LeaveAll(now, replies); }

  // --- For whoever runs functions
  // ------------------------------------------------------------------------------------

  // A call whose arguments are all held. They are the runner's until Finish.
  struct Run {
    ReferenceId call;
    std::string function;
    std::vector<Handle> arguments;
    ReferenceScope scope;
  };
  std::vector<Run> TakeRuns();
  void Finish(const Run& run, absl::StatusOr<ValuePtr> value, absl::Time now, Replies& replies);

  // --- For the service adapter
  // ---------------------------------------------------------------------------------------

  // Leases, deadlines, retries: to be called every few milliseconds.
  void Tick(absl::Time now, Replies& replies);
  std::vector<ToOwner> TakeOutgoing(absl::Time now) { return holder_.TakeOutgoing(now); }
  void OnReply(uint64_t token, absl::StatusOr<FromOwner> reply, absl::Time now, Replies& replies);

  absl::StatusOr<OpenSessionReply> OnOpen(const OpenSessionRequest& request, absl::Time now,
                                          Replies& replies);
  absl::StatusOr<RenewSessionReply> OnRenew(const RenewSessionRequest& request, absl::Time now,
                                            Replies& replies);
  void OnLeave(const LeaveSessionRequest& request, absl::Time now, Replies& replies);
  void OnCall(const OutgoingCall& call, CallTime time, Replies& replies,
              Done<RemoteCallReply> done);
  void OnFork(const ForkRequest& request, CallTime time, Replies& replies, Done<ForkReply> done);
  void OnDrop(const DropRequest& request, CallTime time, Replies& replies, Done<DropReply> done);
  void OnFetch(const FetchRequest& request, CallTime time, Replies& replies,
               Done<FetchedValue> done);

  const ReferenceOwner& owner() const { return owner_; }
  const ReferenceHolder& holder() const { return holder_; }
  size_t handles() const { return references_.size(); }
  size_t arriving() const { return arriving_.size(); }  // calls whose arguments are not all held
  // Of a fork: its reference, and where it is. Of an own value: the reference, and no place.
  ReferenceId IdOf(Handle handle) const;
  bool IsOwn(Handle handle) const { return references_.at(handle).held == 0; }
  // Whether Fetch answers without asking another process: it came with its call.
  bool IsHere(Handle handle) const {
    return !IsOwn(handle) && holder_.IsHere(references_.at(handle).held);
  }
  absl::Status StatusOf(Handle handle, absl::Time now) const;
  ReferenceOwner::Given PlaceOf(Handle handle) const;

 private:
  struct Reference {
    uint64_t copies = 1;
    ReferenceId own;  // where held is 0: pinned once
    ReferenceHolder::HeldId held = 0;
    ReferenceScope scope;
  };
  // A call whose arguments are not all held yet.
  struct Arriving {
    Run run;
    size_t open = 0;
    absl::Status failed;
  };

  Handle Own(const ReferenceId& id, const ReferenceScope& scope);
  Handle Held(ReferenceHolder::HeldId held, const ReferenceScope& scope);
  void Argue(const ReferenceId& call, size_t index, const ReferenceArgument& argument,
             ValuePtr ahead, absl::Time now, Replies& replies);
  void Settle(const ReferenceId& call, const absl::Status& status, absl::Time now,
              Replies& replies);
  void DropCancelled(absl::Time now, Replies& replies);
  void DropArguments(const Run& run, bool at_once, absl::Time now, Replies& replies);

  const Options options_;
  ReferenceOwner owner_;
  ReferenceHolder holder_;
  std::map<Handle, Reference> references_;
  Handle next_handle_ = 1;
  std::map<ReferenceId, Arriving> arriving_;
  std::deque<Run> ready_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_SPACE_H_
