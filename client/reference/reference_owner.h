#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_OWNER_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_OWNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reference/reference_id.h"
#include "client/reference/remote_value.h"
#include "common/replies.h"
#include "proto/remote_reference.pb.h"

namespace parley {

// What a Fetch is answered with: the value, or the error that stands in its place.
struct FetchedValue {
  absl::StatusOr<ValuePtr> value;
};

// The values that live in this process, and who holds them: the owner's side of
// docs/remote_references.md. A value lives as long as a fork of a session with a lease, or a pin of
// this process, holds it, or until its step has ended.
//
// Forks move from unknown to held to dropped and never back. What makes that so under messages that
// are lost, doubled and late: each change is a numbered call of a session, done once, and a session
// that is over takes no call. (PyTorch's RRef protocol, torch/csrc/distributed/rpc/rref_context.h,
// assumes that neither happens, and that nobody crashes.)
//
// A plain state machine, part of ReferenceSpace, which calls it under its lock. Each method ends
// first what is over by `now`. A parked call is answered DeadlineExceeded by the first call after
// its deadline.
class ReferenceOwner {
 public:
  struct Options {
    std::string job;
    uint64_t incarnation = 0;
    absl::Duration lease;
    std::function<uint64_t()> draw_session;  // a random number, never 0
  };

  // Why a value was freed, or a session ended.
  enum class Why { kUnused, kLeaseOver, kLeft, kRevoked, kStepEnded };
  // For logs, and for whoever checks that nobody held it (the simulation). Called under the lock.
  struct Observer {
    std::function<void(const ReferenceId&, Why)> freed;
    std::function<void(uint64_t session, const std::string& holder_address, Why)> session_over;
  };

  explicit ReferenceOwner(Options options, Observer observer = {})
      : options_(std::move(options)), observer_(std::move(observer)) {}

  void Tick(absl::Time now, Replies& replies);

  // --- Calls of holders: proto/remote_reference.proto says what they answer
  // ----------------------------------------------------------------------

  absl::StatusOr<OpenSessionReply> Open(const OpenSessionRequest& request, absl::Time now,
                                        Replies& replies);
  absl::StatusOr<RenewSessionReply> Renew(const RenewSessionRequest& request, absl::Time now,
                                          Replies& replies);
  void Leave(const LeaveSessionRequest& request, absl::Time now, Replies& replies);
  void Fork(const ForkRequest& request, CallTime time, Replies& replies, Done<ForkReply> done);
  void Drop(const DropRequest& request, CallTime time, Replies& replies, Done<DropReply> done);
  void Fetch(const FetchRequest& request, CallTime time, Replies& replies, Done<FetchedValue> done);

  // A call that is to make a value. It is new: returns the value's name, with one fork (the
  // caller's) and one pin (until Finish); ConfirmCall answers it. Else it has been or will be
  // answered.
  std::optional<ReferenceId> BeginCall(const RemoteCallRequest& request, CallTime time,
                                       Replies& replies, Done<RemoteCallReply> done);
  void ConfirmCall(const ReferenceId& call, absl::Time now, Replies& replies);
  // The value is there, or will never be.
  void Finish(const ReferenceId& call, absl::StatusOr<ValuePtr> value, absl::Time now,
              Replies& replies);
  // Calls that nobody waits for any more: dropped, or of a session or step that is over. Each once.
  std::vector<ReferenceId> TakeCancelled() { return std::exchange(cancelled_, {}); }

  // --- Of this process itself
  // ------------------------------------------------------------------------------------------

  // A value with one pin.
  ReferenceId Make(ValuePtr value, const StepScope& scope);
  // Pins what there is. Where its call has not come yet `then` runs when it has, with Ok and the
  // pin, or with why there will be none; else at once. NotFound: it is gone.
  using Then = std::function<void(const absl::Status&, absl::Time, Replies&)>;
  void Pin(const ReferenceId& id, absl::Time now, Replies& replies, Then then);
  void Unpin(const ReferenceId& id, absl::Time now, Replies& replies);
  // FailedPrecondition: its step has ended. NotFound: it is gone.
  void Await(const ReferenceId& id, CallTime time, Replies& replies, Done<FetchedValue> done);
  // The value if it is there and no error.
  ValuePtr Ready(const ReferenceId& id) const;

  // A fork for the process `holder` (incarnation), which is told of it in a call: session and fork.
  // None where it has no session here that it is known to use, or the value is gone.
  struct Given {
    uint64_t session = 0;
    uint64_t fork = 0;
  };
  std::optional<Given> Give(const ReferenceId& id, uint64_t holder);
  // The holder has not accepted it and never will.
  void TakeBack(const Given& given, absl::Time now, Replies& replies);
  // Nobody knows whether it has: its session ends, so that either way nothing stays.
  void Revoke(const Given& given, absl::Time now, Replies& replies);

  // Frees all of this attempt and what is before it, and refuses what comes of them later.
  void EndStep(const StepScope& scope, absl::Time now, Replies& replies);

  // --- What there is, for metrics and tests
  // ----------------------------------------------------------------------------

  size_t values() const { return entries_.size(); }
  size_t sessions() const { return sessions_.size(); }
  size_t operations() const;                   // that are remembered
  size_t waiting() const;                      // parked calls
  uint64_t mended() const { return mended_; }  // forks that the two sides did not agree about
  bool Holds(uint64_t session, uint64_t fork) const;
  bool Has(const ReferenceId& id) const { return entries_.contains(id); }

 private:
  struct WaitingFetch {
    absl::Time deadline;
    Done<FetchedValue> done;
  };
  struct Entry {
    std::optional<absl::StatusOr<ValuePtr>> value;
    uint64_t pins = 0;
    std::set<std::pair<uint64_t, uint64_t>> forks;  // session, fork
    StepScope scope;
    std::vector<WaitingFetch> waiting;
  };

  // A numbered call: open until it has its answer.
  struct Operation {
    // no_effect: of a Drop, DropReply's.
    using Answer = std::function<void(const absl::Status&, const std::vector<uint64_t>& no_effect)>;
    struct Parked {
      absl::Time deadline;
      Answer answer;
    };
    std::optional<absl::Status> status;
    std::vector<Parked> parked;
    std::vector<uint64_t> no_effect;
    bool is_call = false;
  };
  struct Session {
    uint64_t holder = 0;
    std::string holder_address;
    absl::Time ends;
    bool used = false;  // by anything but its Open, which may have come twice
    uint64_t first_open = 1;
    uint64_t highest = 0;                      // number seen
    std::map<uint64_t, Operation> operations;  // from first_open on
    std::map<uint64_t, ReferenceId> forks;
    uint64_t given = 0;  // accepted, or under way
    uint64_t next_given = kGivenFork;
  };

  // Waits until a numbered call has come.
  struct Awaiting {
    absl::Time deadline;
    Then then;
  };
  using CallKey = std::pair<uint64_t, uint64_t>;  // session, number

  absl::StatusOr<Session*> Find(const SessionHeader& header);
  void Expire(absl::Time now, Replies& replies);
  void ExpireParked(absl::Time now, Replies& replies);
  void EndSession(uint64_t session, Why why, absl::Time now, Replies& replies);

  // Whether the call has been done, or never will be.
  static bool Seen(const Session& session, uint64_t number);
  // New: an open operation. Else nullptr, and the call has been or will be answered.
  Operation* Begin(Session& session, const CallNumber& number, CallTime time, Replies& replies,
                   Operation::Answer answer);
  void Answer(uint64_t session_id, uint64_t number, const absl::Status& status, absl::Time now,
              Replies& replies);
  void Wake(const CallKey& call, const absl::Status& status, absl::Time now, Replies& replies);
  // Runs `then` with Ok when the value has an entry (now, perhaps), with an error when it never
  // will.
  void WhenMade(const ReferenceId& id, absl::Time now, Replies& replies, Then then);

  void AddFork(uint64_t session_id, uint64_t fork, const ReferenceId& id, Entry& entry);
  // Whether its call has had no effect, and will have none.
  bool DropFork(uint64_t session_id, uint64_t fork, absl::Time now, Replies& replies);
  void RemoveFork(uint64_t session_id, uint64_t fork, Why why, Replies& replies);
  void FreeIfUnused(const ReferenceId& id, Why why, Replies& replies);
  void Reconcile(uint64_t session_id, const RenewSessionRequest& request, Replies& replies,
                 RenewSessionReply& reply);

  // Constant after construction.
  const Options options_;
  const Observer observer_;

  std::map<ReferenceId, Entry> entries_;
  std::map<uint64_t, Session> sessions_;
  std::map<CallKey, std::vector<Awaiting>> awaiting_;
  std::vector<ReferenceId> cancelled_;
  uint64_t next_own_ = 1;
  StepScope ended_;  // all of it and before
  uint64_t mended_ = 0;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_OWNER_H_
