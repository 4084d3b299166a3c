#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_HOLDER_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_HOLDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reference/reference_id.h"
#include "client/reference/reference_owner.h"
#include "client/reference/remote_value.h"
#include "common/replies.h"
#include "proto/remote_reference.pb.h"

namespace parley {

// A RemoteCallRequest without the values that go ahead, and these: nullptr where an argument has
// none. The adapter puts the two together.
struct OutgoingCall {
  RemoteCallRequest head;
  std::vector<ValuePtr> ahead;
};

// A message to be sent once; its answer, or that there is none, comes back by OnReply. token 0:
// nobody waits for an answer.
struct ToOwner {
  uint64_t token = 0;
  std::string address;
  absl::Time deadline;
  std::variant<OpenSessionRequest, RenewSessionRequest, LeaveSessionRequest, OutgoingCall,
               ForkRequest, DropRequest, FetchRequest>
      request;
};
using FromOwner = std::variant<OpenSessionReply, RenewSessionReply, LeaveSessionReply,
                               RemoteCallReply, ForkReply, DropReply, FetchedValue>;

// What this process holds of other processes' values: the holder's side of
// docs/remote_references.md. A link to each owner has the session and its lease, the numbered calls
// that are not answered yet, and the forks. When the lease may be over, by this process's own clock
// and with a margin for its drift, the link is dead and so is every fork on it: the holder stops
// before the owner frees.
//
// A plain state machine, part of ReferenceSpace, which calls it under its lock.
class ReferenceHolder {
 public:
  struct Options {
    std::string job;
    uint64_t incarnation = 0;
    std::string address;      // of this process
    double margin = 0.125;    // of the lease
    absl::Duration patience;  // how long a first connection is tried
    absl::Duration attempt;   // of one attempt of a message; of one that carries a value, a lease
    absl::Duration retry;     // after one that failed; twice as long each time, up to `attempt`
    absl::Duration gather;    // forks to be dropped wait so long for others
  };
  using HeldId = uint64_t;
  using Then = ReferenceOwner::Then;

  explicit ReferenceHolder(Options options) : options_(std::move(options)) {}

  // --- Links
  // -----------------------------------------------------------------------------------------------------

  // then: Ok, with the owner's incarnation in OwnerAt, when it has answered since; Unavailable
  // after `patience`; or why it refuses: Aborted, where another process has come at that address,
  // whom the next Connect reaches. The link stays, whether it is used or not, until that process
  // has gone or has not been heard of for a lease; one that a Fork has opened goes when it was not
  // used for a lease.
  void Connect(const std::string& address, absl::Time now, Replies& replies, Then then);
  // The incarnation of the process at `address`; 0: not connected.
  uint64_t OwnerAt(const std::string& address) const;

  // --- Forks
  // -----------------------------------------------------------------------------------------------------
  // A HeldId is held once by whoever gets it, and once more for each Hold; Release gives one back.
  // When none is left the fork is dropped, or, if its call is still open, when that has been
  // answered.

  // What the callee has done with the arguments of a call.
  enum class Accepted { kYes, kNo, kUnknown };
  using CallEnded = std::function<void(const absl::Status&, Accepted, absl::Time, Replies&)>;
  // Calls the process at `address`; the result is held at once. FailedPrecondition: not connected.
  absl::StatusOr<HeldId> Call(const std::string& address, OutgoingCall call, absl::Time now,
                              CallEnded ended);
  // A fork of a value that somebody else holds: its name came in a call.
  HeldId Fork(const ReferenceId& id, const std::string& address, const StepScope& scope,
              absl::Time now, Replies& replies, Then then);
  // A fork that its owner has given, if it is of the session that this process has there.
  std::optional<HeldId> Accept(const ReferenceId& id, const StepScope& scope,
                               const ReferenceOwner::Given& given, ValuePtr ahead, absl::Time now);
  void Hold(HeldId held) { ++held_.at(held).holds; }
  void Release(HeldId held, absl::Time now, Replies& replies);
  // The same for who will not use it even if it comes: what has not reached the owner never will.
  void Abandon(HeldId held, absl::Time now, Replies& replies);

  // The value; its error; Aborted: the owner is lost, or its lease; FailedPrecondition: the step
  // has ended; DeadlineExceeded.
  void Fetch(HeldId held, CallTime time, Replies& replies, Done<FetchedValue> done);

  // Ok, or why it can be used no more.
  absl::Status StatusOf(HeldId held, absl::Time now) const;
  const ReferenceId& IdOf(HeldId held) const { return held_.at(held).id; }
  bool IsHere(HeldId held) const { return held_.at(held).ahead != nullptr; }
  const std::string& AddressOf(HeldId held) const { return held_.at(held).address; }
  // Session and fork at the owner.
  ReferenceOwner::Given PlaceOf(HeldId held) const;

  // All of this attempt and before is dead from now on, and given up.
  void EndStep(const StepScope& scope, absl::Time now, Replies& replies);
  // Gives up everything, once: for the end of the process.
  void LeaveAll(absl::Time now, Replies& replies);

  // --- Time and messages
  // -----------------------------------------------------------------------------------------

  // Leases, and deadlines of fetches.
  void Tick(absl::Time now, Replies& replies);
  // What is to be sent now.
  std::vector<ToOwner> TakeOutgoing(absl::Time now);
  void OnReply(uint64_t token, absl::StatusOr<FromOwner> reply, absl::Time now, Replies& replies);

  // The places of the forks of it that are confirmed and not dead.
  std::vector<ReferenceOwner::Given> UsableForks(const ReferenceId& id, absl::Time now) const;

  size_t links() const { return links_.size(); }
  size_t held() const { return held_.size(); }
  size_t open_calls() const;
  uint64_t mended() const { return mended_; }

 private:
  using LinkId = uint64_t;

  struct Held {
    ReferenceId id;
    std::string address;
    StepScope scope;
    LinkId link = 0;
    uint64_t fork = 0;
    uint64_t holds = 1;
    bool confirmed = false;
    absl::Status dead;  // why it can be used no more
    ValuePtr ahead;
    size_t fetches = 0;  // that are open
  };

  // When to try again.
  struct Attempts {
    uint64_t token = 0;  // of the attempt under way; 0: none
    absl::Time next = absl::InfinitePast();
    absl::Duration wait;
  };

  struct Operation {
    std::variant<OutgoingCall, ForkRequest, DropRequest> request;
    HeldId held = 0;  // that it makes
    CallEnded ended;
    Attempts attempts;
    bool was_sent = false;
    bool superseded = false;  // by a Drop that is open too
  };

  struct Link {
    std::string address;
    uint64_t owner = 0;    // expected while it is being opened, 0: whoever it is
    uint64_t session = 0;  // 0: being opened
    absl::Time give_up;    // while it is being opened
    Attempts opening;
    absl::Time open_sent;
    std::vector<Then> on_open;

    absl::Duration lease;
    absl::Time usable_until = absl::InfiniteFuture();
    Attempts renewing;
    absl::Time renew_sent;
    bool differs = false;
    uint64_t given_received = 0;

    uint64_t next_number = 1;
    std::map<uint64_t, Operation> operations;
    std::set<HeldId> held;
    std::vector<uint64_t> to_drop;
    absl::Time drop_at = absl::InfiniteFuture();  // the first of them
    bool connected = false;                       // by Connect
    absl::Time used_at;
  };

  struct OpenFetch {
    HeldId held = 0;
    absl::Time deadline;
    Done<FetchedValue> done;
    Attempts attempts;
    absl::Status failed;  // the last attempt
  };

  // Whom an answer is for.
  enum class Kind { kOpen, kRenew, kOperation, kFetch };
  struct Pending {
    Kind kind;
    LinkId link = 0;
    uint64_t number = 0;  // of the operation, or of the fetch
  };

  LinkId LinkTo(const std::string& address, uint64_t owner, absl::Time now);
  HeldId AddHeld(LinkId link, const ReferenceId& id, const StepScope& scope, uint64_t fork);
  // Of the link's next number.
  void AddOperation(Link& link, Operation operation);
  uint64_t Sent(Attempts& attempts, Pending pending);
  void Failed(Attempts& attempts, absl::Time now) const;
  absl::Status WhyLeaseOver(const Link& link) const;
  void Die(LinkId link, const absl::Status& why, absl::Time now, Replies& replies);
  void LetGo(HeldId held, bool at_once);
  void Supersede(Link& link, uint64_t number);
  void EndOperation(LinkId link, uint64_t number, const absl::Status& status, Accepted accepted,
                    absl::Time now, Replies& replies);
  void EndFetch(uint64_t fetch, absl::StatusOr<FetchedValue> value, Replies& replies);
  void EndFetchesOf(HeldId held, const absl::Status& why, Replies& replies);

  void OnOpen(LinkId link, const absl::StatusOr<FromOwner>& reply, absl::Time now,
              Replies& replies);
  void OnRenew(LinkId link, const absl::StatusOr<FromOwner>& reply, absl::Time now,
               Replies& replies);
  void OnOperation(LinkId link, uint64_t number, const absl::StatusOr<FromOwner>& reply,
                   absl::Time now, Replies& replies);
  void OnFetch(uint64_t fetch, absl::StatusOr<FromOwner> reply, absl::Time now, Replies& replies);
  void SendOpen(LinkId id, Link& link, absl::Time now, std::vector<ToOwner>& out);
  void SendRenew(LinkId id, Link& link, absl::Time now, std::vector<ToOwner>& out);
  void SendOperations(LinkId id, Link& link, absl::Time now, std::vector<ToOwner>& out);
  void SendFetches(absl::Time now, std::vector<ToOwner>& out);
  absl::Duration ValueAttempt(const Link& link) const;

  const Options options_;
  std::map<LinkId, Link> links_;
  std::map<HeldId, Held> held_;
  std::map<uint64_t, OpenFetch> fetches_;
  std::map<uint64_t, Pending> pending_;  // by token
  std::vector<ToOwner> farewells_;
  uint64_t next_id_ = 1;  // of links, forks, fetches and tokens
  uint64_t mended_ = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_HOLDER_H_
