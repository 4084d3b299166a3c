#ifndef PARLEY_SERVER_COORDINATOR_MEMBERSHIP_H_
#define PARLEY_SERVER_COORDINATOR_MEMBERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_log.pb.h"

namespace parley {

// Who is a member of the job, as which incarnation, and until when its lease runs. Owned by
// CoordinatorCore, under its lock.
class MemberTable {
 public:
  // Bytes of what a member says of itself. All of it is in each record of the coordinator's log.
  static constexpr size_t kMostSaid = 1024;
  // A process that has been replaced may still be there, or a repetition of its Join under way,
  // which must not be taken for another process. Not after so many others.
  static constexpr size_t kMostGone = 256;

  struct Entry {
    Member member;
    absl::Time joined_at = absl::InfinitePast();  // not known of those from before a takeover
    absl::Time heard_at;                          // of the last accepted call
    absl::Time
        lease_from;  // the lease ends `liveness` after it; heard_at, or when it was granted anew
    uint64_t progress = 0;     // of the last heartbeat
    absl::Time progressed_at;  // when that count last rose
    uint64_t moves = 0;        // the same of what was more than to wait for others
    absl::Time moved_at;
    std::string waits_for;  // by the last heartbeat; often empty
    uint64_t disk_bytes = 0;
    absl::Time disk_moved_at = absl::InfinitePast();
    uint64_t step = 0;  // the last decided step that it knows
    // What it works with, or pulls next, is of this version or a later one; unset: nothing is
    // known.
    std::optional<uint64_t> parameters;
    // For good: a newer process came at its address, or its place was taken from it.
    bool fenced = false;
    std::string why_fenced;
    bool left = false;
    // Was told to go: it holds its place until then, but none of those that its role has.
    bool drained = false;
    absl::Time drained_at;
  };

  struct JoinResult {
    Entry* entry = nullptr;
    bool repeated = false;            // the same incarnation has joined before
    const Entry* replaced = nullptr;  // whom it has fenced
  };

  // `places`: how many members each role has at first. `group`: so many workers, by ordinal, are a
  // node group, whose members are on one host (that of their addresses).
  MemberTable(std::string job, std::string fingerprint, std::map<Role, uint32_t> places,
              absl::Duration liveness, uint32_t group = 1);

  // NOT_FOUND and INVALID_ARGUMENT of Join, without effect.
  absl::Status Check(const JoinRequest& request) const;
  // Whether this incarnation has joined before.
  bool Knows(uint64_t incarnation) const;

  // Takes the caller in: the lowest free ordinal of its role, a worker's in a node group of its
  // host, and an id that nobody had before. A new incarnation at the address of a member of the
  // same role takes its ordinal and fences it.
  // NOT_FOUND: the job is another one. INVALID_ARGUMENT: no such role, incarnation 0, another job
  // file (both fingerprints), a worker of a node group without an address, or an address or host
  // that is none (longer than kMostSaid, or with control characters). RESOURCE_EXHAUSTED:
  // the role has all its members, or for a worker of its host there is no place. ABORTED: this
  // incarnation has been fenced.
  absl::StatusOr<JoinResult> Join(const JoinRequest& request, absl::Time now);

  // The member that calls; renews its lease. NOT_FOUND: another job; ABORTED: no member, or fenced.
  absl::StatusOr<Entry*> Admit(const CallHeader& header, absl::Time now);

  void Heartbeat(Entry& entry, const HeartbeatRequest& request, absl::Time now);
  void Leave(Entry& entry);
  // The member counts no more: its calls are ABORTED from now on, and its place is free.
  void Fence(uint64_t member, std::string why);
  // It has left, and its place is free: nobody depends on it.
  void Release(Entry& entry);
  // It is told to go: it counts as none of its role's members any more.
  void Drain(uint64_t member, absl::Time now);
  // Of those that have gone and hold no place only the last kMostGone are remembered, and the last
  // one of each place, and these. Returns those that are forgotten now: their calls are ABORTED as
  // before.
  std::set<uint64_t> ForgetGone(const std::set<uint64_t>& but);
  // The role has so many members from now on.
  void SetPlaces(Role role, uint32_t places);

  // The member has a part in a step: so it gets on, though it may be one that does not tell.
  void Contributed(uint64_t member, absl::Time now);

  // What the member works with, or pulls next, is of this version or a later one.
  void RaiseParameters(uint64_t member, uint64_t version);
  // Nobody knows a later step than this one any more, and all pull this version.
  void RollBack(uint64_t step);

  // Every lease begins anew.
  void GrantLeases(absl::Time now);

  // For the log. Read: of an empty table, which is left as it is where the state is not one that
  // Write made (DATA_LOSS); nobody counts as heard of before Resume.
  void Write(CoordinatorState& state) const;
  absl::Status Read(const CoordinatorState& state);
  // All members were heard of just now: whoever kept count of them before is gone.
  void Resume(absl::Time now);

  // When the last word of any present member came; InfinitePast if there is none.
  absl::Time LastHeard() const;

  // Whether the word of any holder has come since then, be it one that has left.
  bool HeardSince(absl::Time when) const;

  // The member whose lease is over; the one silent for longest if there are several; null if none.
  const Entry* Expired(absl::Time now) const;
  // Those that have not left, and are not past their lease.
  std::vector<const Entry*> NotGone(absl::Time now) const;

  bool Complete() const;  // every role has all its members
  // The role's holders of places, without those that were told to go.
  uint32_t Count(Role role) const;
  // Those, by ordinal.
  std::vector<const Entry*> Staying(Role role) const;
  // The current holders of all ordinals, by role, then ordinal; those that left are not among them.
  std::vector<Member> Present() const;
  // All current holders, those that left too; same order.
  std::vector<const Entry*> Holders() const;
  // Null where there is none. Also those without a place.
  const Entry* Find(uint64_t id) const;
  // Null where there is none.
  const Entry* Holder(Role role, uint32_t ordinal) const;
  // The last one that was fenced, or had left, in this place. Null if nobody was.
  const Entry* LastLost(Role role, uint32_t ordinal) const;
  uint32_t places(Role role) const;
  // Those of all roles that were told to go and have not gone.
  std::set<uint64_t> Drained() const;
  uint64_t revision() const { return revision_; }

 private:
  void FreePlaceOf(const Entry& entry);
  uint32_t HoldersOf(Role role) const;
  // For a process of the role at this address. RESOURCE_EXHAUSTED as Join.
  absl::StatusOr<uint32_t> FindPlace(Role role, const std::string& address) const;
  // One of a present worker of the node group; empty where there is none.
  std::string HostOfGroup(uint32_t group) const;
  bool LeaseIsOver(const Entry& entry, absl::Time now) const;

  const std::string job_;
  const std::string fingerprint_;
  const absl::Duration liveness_;
  const uint32_t group_;

  std::map<Role, uint32_t> places_;
  std::map<uint64_t, Entry> entries_;                      // by id
  std::map<std::pair<Role, uint32_t>, uint64_t> holders_;  // (role, ordinal) -> id
  uint64_t last_id_ = 0;
  uint64_t revision_ = 0;
};

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_MEMBERSHIP_H_
