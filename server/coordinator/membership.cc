#include "server/coordinator/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/utf8.h"

namespace parley {
namespace {

// A cause has it, which everybody prints.
constexpr size_t kMostWaitsFor = 500;

absl::Status AnotherJob(const std::string& asked, const std::string& here) {
  return absl::NotFoundError(
      absl::StrCat("this is the coordinator of job '", here, "', not of '", asked, "'"));
}

// What a member says of itself: others print it, and the coordinator keeps it.
absl::Status CheckSaid(const char* what, const std::string& said) {
  if (said.size() > MemberTable::kMostSaid) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " has ", said.size(),
                                                   " bytes; it may have ", MemberTable::kMostSaid));
  }
  if (std::any_of(said.begin(), said.end(), absl::ascii_iscntrl)) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " has control characters"));
  }
  return absl::OkStatus();
}

// Of host:port.
std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

MemberTable::MemberTable(std::string job, std::string fingerprint, std::map<Role, uint32_t> places,
                         absl::Duration liveness, uint32_t group)
    : job_(std::move(job)),
      fingerprint_(std::move(fingerprint)),
      liveness_(liveness),
      group_(std::max(group, uint32_t{1})),
      places_(std::move(places)) {}

absl::Status MemberTable::Check(const JoinRequest& request) const {
  if (request.header().job() != job_) return AnotherJob(request.header().job(), job_);
  if (request.header().incarnation() == 0) {
    return absl::InvalidArgumentError(
        "incarnation 0: draw a random number when the process starts");
  }
  if (places_.count(request.role()) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("role ", static_cast<int>(request.role()), " does not join a job"));
  }
  for (const auto& [what, said] : {std::pair("address", &request.address()),
                                   std::pair("metrics_address", &request.metrics_address()),
                                   std::pair("host", &request.host())}) {
    if (absl::Status status = CheckSaid(what, *said); !status.ok()) return status;
  }
  // Its host is known by it, and the others find it by it.
  if (request.role() == WORKER && group_ > 1 && request.address().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", job_,
                     "' has node groups, whose workers reach each other by their addresses: this "
                     "one has none; say host:port of a server of its own"));
  }
  // A client in another language need not know how to compute it.
  if (!request.job_fingerprint().empty() && request.job_fingerprint() != fingerprint_) {
    return absl::InvalidArgumentError(
        absl::StrCat("job '", job_, "' here has fingerprint ", fingerprint_, ", the caller's has ",
                     request.job_fingerprint(), ": start all processes with the same job file"));
  }
  return absl::OkStatus();
}

bool MemberTable::Knows(uint64_t incarnation) const {
  for (const auto& [id, entry] : entries_) {
    if (entry.member.incarnation() == incarnation) return true;
  }
  return false;
}

absl::StatusOr<MemberTable::JoinResult> MemberTable::Join(const JoinRequest& request,
                                                          absl::Time now) {
  if (absl::Status status = Check(request); !status.ok()) return status;
  const Role role = request.role();
  for (auto& [id, entry] : entries_) {
    if (entry.member.incarnation() != request.header().incarnation()) continue;
    if (entry.fenced || Holder(entry.member.role(), entry.member.ordinal()) != &entry) {
      return absl::AbortedError(
          absl::StrCat("this incarnation was member ", id,
                       " and has lost its place: join as a new incarnation to take part again"));
    }
    entry.heard_at = entry.lease_from = now;
    return JoinResult{&entry, /*repeated=*/true, nullptr};
  }

  JoinResult result;
  uint32_t ordinal = 0;
  for (auto& [id, entry] : entries_) {
    // One that was told to go has no place to pass on.
    if (entry.fenced || entry.left || entry.drained || entry.member.role() != role) continue;
    if (request.address().empty() || entry.member.address() != request.address()) continue;
    // One address is one process: the old one is gone.
    entry.fenced = true;
    entry.why_fenced =
        absl::StrCat("a new process (pid ", request.pid(), ") has come at its address");
    result.replaced = &entry;
    ordinal = entry.member.ordinal();
    break;
  }
  if (result.replaced == nullptr) {
    absl::StatusOr<uint32_t> place = FindPlace(role, request.address());
    if (!place.ok()) return place.status();
    ordinal = *place;
  }

  Entry entry;
  entry.member.set_id(++last_id_);
  entry.member.set_role(role);
  entry.member.set_ordinal(ordinal);
  entry.member.set_incarnation(request.header().incarnation());
  entry.member.set_address(request.address());
  entry.member.set_metrics_address(request.metrics_address());
  entry.member.set_pid(request.pid());
  entry.member.set_host(request.host());
  entry.joined_at = now;
  entry.heard_at = entry.lease_from = entry.progressed_at = entry.moved_at = now;
  holders_[{role, ordinal}] = last_id_;
  result.entry = &(entries_[last_id_] = std::move(entry));
  ++revision_;
  return result;
}

std::string MemberTable::HostOfGroup(uint32_t group) const {
  for (uint32_t rank = 0; rank < group_; ++rank) {
    const Entry* const holder = Holder(WORKER, group * group_ + rank);
    if (holder != nullptr) return HostOf(holder->member.address());
  }
  return "";
}

absl::StatusOr<uint32_t> MemberTable::FindPlace(Role role, const std::string& address) const {
  const std::string host = HostOf(address);
  std::string elsewhere;  // free places that are not for this host
  // Those that were told to go still have their ordinals, so that there are some above.
  const uint32_t places = places_.at(role);
  const uint32_t staying = Count(role);
  const uint32_t end = staying < places ? places + HoldersOf(role) - staying : 0;
  for (uint32_t ordinal = 0; ordinal < end; ++ordinal) {
    if (holders_.count({role, ordinal}) != 0) continue;
    if (role != WORKER || group_ == 1) return ordinal;
    const std::string there = HostOfGroup(ordinal / group_);
    if (there.empty() || there == host) return ordinal;
    absl::StrAppend(&elsewhere, elsewhere.empty() ? "" : ", ", "worker ", ordinal, " on ", there);
  }
  if (!elsewhere.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "job '", job_, "' has node groups of ", group_,
        " workers, each on one host, and none has a place for a worker on ", host,
        "; free are: ", elsewhere, ". Start as many workers on each host as cluster.group says"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "job '", job_, "' has all its ", places,
      " members of this role already; is a process of an earlier run still there? A place "
      "becomes free when its holder has been silent for ",
      absl::FormatDuration(liveness_)));
}

absl::StatusOr<MemberTable::Entry*> MemberTable::Admit(const CallHeader& header, absl::Time now) {
  if (header.job() != job_) return AnotherJob(header.job(), job_);
  const auto found = entries_.find(header.member());
  if (found == entries_.end()) {
    return absl::AbortedError(
        absl::StrCat("nobody has joined job '", job_, "' as member ", header.member()));
  }
  Entry& entry = found->second;
  if (entry.member.incarnation() != header.incarnation()) {
    return absl::AbortedError(absl::StrCat("member ", header.member(), " of job '", job_,
                                           "' is another incarnation: this one is fenced"));
  }
  if (entry.fenced) {
    return absl::AbortedError(absl::StrCat(
        "member ", header.member(), " of job '", job_, "' is fenced: it was silent for ",
        absl::FormatDuration(liveness_), " or longer, or a newer process has its address"));
  }
  entry.heard_at = entry.lease_from = std::max(now, entry.lease_from);
  return &entry;
}

void MemberTable::Heartbeat(Entry& entry, const HeartbeatRequest& request, absl::Time now) {
  if (request.progress() > entry.progress) {
    entry.progress = request.progress();
    entry.progressed_at = now;
    if (request.moves() == 0) entry.moved_at = now;
  }
  if (request.moves() > entry.moves) {
    entry.moves = request.moves();
    entry.moved_at = now;
  }
  if (request.disk_bytes() > entry.disk_bytes) {
    entry.disk_bytes = request.disk_bytes();
    entry.disk_moved_at = now;
  }
  entry.waits_for = ValidUtf8(request.waits_for(), kMostWaitsFor);
  entry.step = std::max<uint64_t>(entry.step, request.step());
  // 0 is also what one says that knows no step of this job_epoch.
  if (request.step() != 0) RaiseParameters(entry.member.id(), request.step());
}

void MemberTable::Contributed(uint64_t member, absl::Time now) {
  const auto found = entries_.find(member);
  // Who tells knows more: what it contributed may be of some time ago.
  if (found == entries_.end() || found->second.progress != 0) return;
  found->second.progressed_at = found->second.moved_at = now;
}

void MemberTable::RaiseParameters(uint64_t member, uint64_t version) {
  const auto found = entries_.find(member);
  if (found == entries_.end()) return;
  std::optional<uint64_t>& parameters = found->second.parameters;
  parameters = std::max(parameters.value_or(version), version);
}

void MemberTable::RollBack(uint64_t step) {
  for (auto& [id, entry] : entries_) {
    entry.step = std::min(entry.step, step);
    entry.parameters = step;
  }
}

void MemberTable::Leave(Entry& entry) {
  if (entry.left) return;
  entry.left = true;
  ++revision_;
}

void MemberTable::Fence(uint64_t member, std::string why) {
  const auto found = entries_.find(member);
  if (found == entries_.end()) return;
  found->second.fenced = true;
  found->second.why_fenced = std::move(why);
  FreePlaceOf(found->second);
}

void MemberTable::Release(Entry& entry) {
  Leave(entry);
  FreePlaceOf(entry);
}

void MemberTable::Drain(uint64_t member, absl::Time now) {
  const auto found = entries_.find(member);
  if (found == entries_.end() || found->second.drained) return;
  found->second.drained = true;
  found->second.drained_at = now;
}

std::set<uint64_t> MemberTable::ForgetGone(const std::set<uint64_t>& but) {
  std::map<std::pair<Role, uint32_t>, uint64_t> last;  // that has gone, by place
  std::vector<uint64_t> gone;
  for (const auto& [id, entry] : entries_) {
    const Member& member = entry.member;
    if (!entry.fenced && !entry.left) continue;
    last[{member.role(), member.ordinal()}] = id;
    if (Holder(member.role(), member.ordinal()) != &entry) gone.push_back(id);
  }
  if (gone.size() <= kMostGone) return {};
  gone.resize(gone.size() - kMostGone);
  std::set<uint64_t> forgotten;
  for (const uint64_t id : gone) {
    const Member& member = entries_.at(id).member;
    if (last.at({member.role(), member.ordinal()}) == id || but.count(id) != 0) continue;
    entries_.erase(id);
    forgotten.insert(id);
  }
  return forgotten;
}

void MemberTable::SetPlaces(Role role, uint32_t places) { places_[role] = places; }

void MemberTable::FreePlaceOf(const Entry& entry) {
  const auto place = holders_.find({entry.member.role(), entry.member.ordinal()});
  if (place == holders_.end() || place->second != entry.member.id()) return;
  holders_.erase(place);
  ++revision_;
}

void MemberTable::GrantLeases(absl::Time now) {
  for (auto& [id, entry] : entries_) entry.lease_from = now;
}

void MemberTable::Write(CoordinatorState& state) const {
  for (const auto& [id, entry] : entries_) {
    LoggedMember* logged = state.add_members();
    *logged->mutable_member() = entry.member;
    logged->set_fenced(entry.fenced);
    logged->set_left(entry.left);
    logged->set_drained(entry.drained);
    logged->set_holds_place(Holder(entry.member.role(), entry.member.ordinal()) == &entry);
  }
  state.set_last_member(last_id_);
}

absl::Status MemberTable::Read(const CoordinatorState& state) {
  std::map<uint64_t, Entry> entries;
  std::map<std::pair<Role, uint32_t>, uint64_t> holders;
  std::map<Role, uint32_t> staying;
  for (const LoggedMember& logged : state.members()) {
    const Member& member = logged.member();
    Entry entry;
    entry.member = member;
    entry.fenced = logged.fenced();
    entry.left = logged.left();
    entry.drained = logged.drained();
    // There may have been more of them: an ordinal is the lowest one that is free.
    const uint64_t most = std::max<uint64_t>(places(member.role()), state.last_member());
    const bool right = member.id() != 0 && member.id() <= state.last_member() &&
                       places_.count(member.role()) != 0 && member.ordinal() < most &&
                       entries.emplace(member.id(), std::move(entry)).second;
    if (!right ||
        (logged.holds_place() &&
         !holders.emplace(std::pair(member.role(), member.ordinal()), member.id()).second) ||
        (logged.holds_place() && !logged.drained() &&
         ++staying[member.role()] > places(member.role()))) {
      return absl::DataLossError(
          absl::StrCat("member ", member.id(), " is none of this job, or is there twice"));
    }
  }
  entries_ = std::move(entries);
  holders_ = std::move(holders);
  last_id_ = state.last_member();
  ++revision_;
  return absl::OkStatus();
}

void MemberTable::Resume(absl::Time now) {
  for (auto& [id, entry] : entries_) {
    entry.heard_at = entry.lease_from = entry.drained_at = now;
    entry.progressed_at = entry.moved_at = now;
  }
}

absl::Time MemberTable::LastHeard() const {
  absl::Time last = absl::InfinitePast();
  for (const Entry* entry : Holders()) {
    if (!entry->left) last = std::max(last, entry->heard_at);
  }
  return last;
}

bool MemberTable::HeardSince(absl::Time when) const {
  const std::vector<const Entry*> holders = Holders();
  return std::any_of(holders.begin(), holders.end(),
                     [&](const Entry* entry) { return entry->heard_at >= when; });
}

bool MemberTable::LeaseIsOver(const Entry& entry, absl::Time now) const {
  return now - entry.lease_from >= liveness_;
}

const MemberTable::Entry* MemberTable::Expired(absl::Time now) const {
  const Entry* expired = nullptr;
  for (const Entry* entry : Holders()) {
    if (entry->left || !LeaseIsOver(*entry, now)) continue;
    if (expired == nullptr || entry->heard_at < expired->heard_at) expired = entry;
  }
  return expired;
}

std::vector<const MemberTable::Entry*> MemberTable::NotGone(absl::Time now) const {
  std::vector<const Entry*> there;
  for (const Entry* entry : Holders()) {
    if (!entry->left && !LeaseIsOver(*entry, now)) there.push_back(entry);
  }
  return there;
}

bool MemberTable::Complete() const {
  return std::all_of(places_.begin(), places_.end(),
                     [this](const auto& places) { return Count(places.first) == places.second; });
}

uint32_t MemberTable::HoldersOf(Role role) const {
  return std::count_if(holders_.begin(), holders_.end(),
                       [role](const auto& holder) { return holder.first.first == role; });
}

uint32_t MemberTable::Count(Role role) const { return Staying(role).size(); }

std::vector<const MemberTable::Entry*> MemberTable::Staying(Role role) const {
  std::vector<const Entry*> staying;
  for (const Entry* entry : Holders()) {
    if (entry->member.role() == role && !entry->drained) staying.push_back(entry);
  }
  return staying;
}

std::set<uint64_t> MemberTable::Drained() const {
  std::set<uint64_t> drained;
  for (const auto& [id, entry] : entries_) {
    if (entry.drained && !entry.left && !entry.fenced) drained.insert(id);
  }
  return drained;
}

std::vector<Member> MemberTable::Present() const {
  std::vector<Member> present;
  for (const Entry* entry : Holders()) {
    if (!entry->left) present.push_back(entry->member);
  }
  return present;
}

std::vector<const MemberTable::Entry*> MemberTable::Holders() const {
  std::vector<const Entry*> holders;
  for (const auto& [place, id] : holders_) holders.push_back(&entries_.at(id));
  return holders;
}

const MemberTable::Entry* MemberTable::Find(uint64_t id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

const MemberTable::Entry* MemberTable::Holder(Role role, uint32_t ordinal) const {
  const auto found = holders_.find({role, ordinal});
  return found == holders_.end() ? nullptr : &entries_.at(found->second);
}

const MemberTable::Entry* MemberTable::LastLost(Role role, uint32_t ordinal) const {
  const Entry* lost = nullptr;
  for (const auto& [id, entry] : entries_) {
    const bool here = entry.member.role() == role && entry.member.ordinal() == ordinal;
    if (here && (entry.fenced || entry.left)) lost = &entry;
  }
  return lost;
}

uint32_t MemberTable::places(Role role) const {
  const auto found = places_.find(role);
  return found == places_.end() ? 0 : found->second;
}

}  // namespace parley
