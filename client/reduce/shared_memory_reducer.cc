#include "client/reduce/shared_memory_reducer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/futex.h"
#include "common/tensor.h"

namespace parley {
namespace {

// A rank that is not there yet, or of another composition, is asked again after so long.
constexpr absl::Duration kAskAgain = absl::Milliseconds(10);
constexpr absl::Duration kAnswerTime = absl::Milliseconds(100);
// So long the thread sleeps at most: it sleeps on one rank's bell, and another one may ring.
constexpr absl::Duration kNap = absl::Milliseconds(10);
constexpr absl::Duration kIdleNap = absl::Seconds(1);
// Values that another rank has not shared for so long are asked of the shards: it may be
// evaluating, or gone.
constexpr absl::Duration kShareTime = absl::Milliseconds(250);

}  // namespace

SharedMemoryReducer::SharedMemoryReducer(std::string address,
                                         const std::vector<TensorSpec>& tensors,
                                         TensorArena& gradients)
    : address_(std::move(address)), tensors_(tensors), gradients_(gradients) {}

GroupComposition SharedMemoryReducer::Composition() const {
  GroupComposition composition;
  composition.set_job(group_.job);
  composition.set_job_epoch(group_.job_epoch);
  composition.set_contributor(group_.contributor);
  composition.set_composition(group_.composition);
  return composition;
}

absl::Status SharedMemoryReducer::Form(Group group, Listener* listener) {
  Abort();
  if (group.rank >= group.members.size() || group.ranges.size() != tensors_.size()) {
    return absl::InternalError("a node group that does not have this rank, or another model");
  }
  if (door_ == nullptr) {
    absl::StatusOr<std::unique_ptr<GroupDoor>> door = GroupDoor::Open(address_);
    if (!door.ok()) return door.status();
    door_ = *std::move(door);
  }
  std::shared_ptr<const MemorySegment> segment;
  std::vector<uint64_t> offsets;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::optional<MemoryPlace> place = gradients_.PlaceOf(i);
    if (!place.has_value() || (segment != nullptr && place->memory != segment)) {
      return absl::ResourceExhaustedError(
          "the gradients of a worker of a node group must lie in shared memory, and the system has "
          "given none: look at the limits of locked and shared memory (memfd) of this process");
    }
    offsets.push_back(place->offset);
    segment = std::move(place->memory);
  }
  absl::StatusOr<std::unique_ptr<OwnWords>> words = OwnWords::Make(offsets);
  if (!words.ok()) return words.status();
  absl::StatusOr<std::unique_ptr<OwnValues>> values =
      OwnValues::Make(ValuesLayout(group.values, group.rank));
  if (!values.ok()) return values.status();

  group_ = std::move(group);
  listener_ = listener;
  words_ = *std::move(words);
  values_ = *std::move(values);
  stopping_ = false;
  {
    absl::MutexLock lock(&mu_);
    peers_.clear();
    peers_.resize(group_.members.size());
    peer_values_.clear();
    peer_values_.resize(group_.members.size());
    watched_.reset();
    tell_ = false;
    heard_.assign(group_.members.size(), 0);
    step_ = 0;
    reduced_.assign(tensors_.size(), true);
  }
  open_tensors_ = 0;
  door_->Show(Composition(), group_.rank,
              {words_->segment(), std::move(segment), values_->segment()});
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void SharedMemoryReducer::Open(uint64_t step, double weight) {
  if (words_ == nullptr) return;
  absl::MutexLock lock(&mu_);
  step_ = step;
  weight_ = weight;
  size_t open = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    reduced_[i] = !Reduces(i);
    if (Reduces(i)) ++open;
  }
  open_tensors_ = open;
  words_->Open(step, weight);
}

void SharedMemoryReducer::Offer(size_t tensor) {
  if (words_ == nullptr || !Reduces(tensor)) return;
  words_->Set(tensor, GradientState::kReady);
  Wake();
}

void SharedMemoryReducer::Close() {
  if (words_ == nullptr) return;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (Reduces(i) && words_->Get(i) == GradientState::kPending) {
      words_->Set(i, GradientState::kNone);
    }
  }
  Wake();
}

void SharedMemoryReducer::Abort() {
  if (words_ == nullptr) return;
  door_->Hide();
  stopping_ = true;
  // Before the thread has ended: whoever reads now finds out.
  values_->End();
  words_->End();
  Wake();
  thread_.join();
  absl::MutexLock lock(&mu_);
  peers_.clear();
  peer_values_.clear();
  watched_.reset();
  words_.reset();
  values_.reset();
  step_ = 0;
  open_tensors_ = 0;
}

void SharedMemoryReducer::Wake() {
  const std::atomic<uint32_t>* const word = sleeps_on_.load();
  if (word != nullptr && word != &words_->bell()) FutexWake(*word);
}

void SharedMemoryReducer::Run() {
  while (!stopping_ && !FindPeers()) {
    TellOfValues(HearBells());
    absl::SleepFor(kAskAgain);
  }
  while (!stopping_) {
    // Whatever rings after this is looked at again.
    const std::vector<uint32_t> heard = HearBells();
    TellOfValues(heard);
    if (!ReduceReady()) Sleep(heard);
  }
}

bool SharedMemoryReducer::FindPeers() {
  std::vector<size_t> bytes;
  for (const TensorSpec& tensor : tensors_) bytes.push_back(ByteCount(tensor));
  bool all = true;
  for (uint32_t rank = 0; rank < group_.members.size() && !stopping_; ++rank) {
    if (rank == group_.rank) continue;
    {
      absl::MutexLock lock(&mu_);
      if (peers_[rank] != nullptr) continue;
    }
    const absl::Status found = FindPeer(rank, bytes);
    if (absl::IsInternal(found) || absl::IsPermissionDenied(found)) {
      Break(found);
      return false;
    }
    all = all && found.ok();
  }
  return all;
}

absl::Status SharedMemoryReducer::FindPeer(uint32_t rank, absl::Span<const size_t> bytes) {
  absl::StatusOr<GroupSegments> segments = GroupDoor::Ask(
      group_.members[rank].address(), Composition(), group_.rank, rank, SteadyNow() + kAnswerTime);
  if (!segments.ok()) return segments.status();
  absl::StatusOr<std::unique_ptr<PeerWords>> peer =
      PeerWords::Make(segments->words, segments->gradients, bytes);
  if (!peer.ok()) return peer.status();
  absl::StatusOr<std::unique_ptr<PeerValues>> values =
      PeerValues::Make(ValuesLayout(group_.values, rank), segments->values);
  if (!values.ok()) return values.status();
  absl::MutexLock lock(&mu_);
  peers_[rank] = *std::move(peer);
  peer_values_[rank] = *std::move(values);
  tell_ = true;
  return absl::OkStatus();
}

void SharedMemoryReducer::Share(const Values& values, absl::Span<const std::byte> bytes) {
  if (values_ != nullptr && values_->Share(values, bytes)) words_->Ring();
}

void SharedMemoryReducer::Withhold(const Values& values) {
  if (values_ != nullptr && values_->Withhold(values)) words_->Ring();
}

Reducer::Taken SharedMemoryReducer::Take(const Values& values, absl::Span<std::byte> to) {
  if (words_ == nullptr || stopping_) return Taken::kWithheld;
  const PeerValues* from = nullptr;
  bool gives_up = false;
  {
    absl::MutexLock lock(&mu_);
    if (values.rank >= peer_values_.size() || values.rank == group_.rank) return Taken::kWithheld;
    from = peer_values_[values.rank].get();
    gives_up = watched_.has_value() && SteadyNow() >= give_up_;
  }
  // Not under the lock: it copies. Nobody but Abort takes one away.
  const Taken taken = from == nullptr ? Taken::kPending : from->Take(values, to);
  return taken == Taken::kPending && gives_up ? Taken::kWithheld : taken;
}

void SharedMemoryReducer::Watch(std::optional<uint32_t> rank) {
  if (words_ == nullptr) return;
  {
    absl::MutexLock lock(&mu_);
    if (watched_ == rank || (rank.has_value() && *rank >= peers_.size())) return;
    // Whoever waits for one rank after the other waits for the group.
    if (!watched_.has_value()) give_up_ = SteadyNow() + kShareTime;
    watched_ = rank;
    if (!rank.has_value()) return;
    tell_ = true;
  }
  words_->Ring();
  Wake();
}

void SharedMemoryReducer::TellOfValues(const std::vector<uint32_t>& heard) {
  bool tell = false;
  {
    absl::MutexLock lock(&mu_);
    if (watched_.has_value()) {
      tell = tell_ || heard[*watched_] != heard_[*watched_] || SteadyNow() >= give_up_;
    }
    tell_ = false;
    heard_ = heard;
  }
  if (tell && !stopping_) listener_->OnShared();
}

void SharedMemoryReducer::Break(const absl::Status& why) {
  if (stopping_.exchange(true)) return;
  listener_->OnBroken(why);
}

std::vector<uint32_t> SharedMemoryReducer::HearBells() const {
  absl::MutexLock lock(&mu_);
  std::vector<uint32_t> heard;
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) heard.push_back(BellOf(rank).load());
  return heard;
}

GradientState SharedMemoryReducer::StateOf(uint32_t rank, size_t tensor) const {
  return rank == group_.rank ? words_->Get(tensor) : peers_[rank]->Get(tensor, step_);
}

bool SharedMemoryReducer::IsReady(size_t tensor) const {
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (StateOf(rank, tensor) == GradientState::kPending) return false;
  }
  return true;
}

bool SharedMemoryReducer::ReduceReady() {
  bool did = false;
  // The last layers' gradients come first.
  for (size_t i = tensors_.size(); i-- > 0 && !stopping_;) {
    absl::Status broken;
    {
      // Not for longer: Open and Missing want it, too.
      absl::MutexLock lock(&mu_);
      if (step_ == 0 || reduced_[i] || !IsReady(i)) continue;
      bool any = false;
      broken = Reduce(i, any);
      if (broken.ok()) {
        reduced_[i] = true;
        did = true;
        if (!stopping_) listener_->OnReduced(i, any);
        --open_tensors_;
      }
    }
    if (!broken.ok()) {
      Break(broken);
      return did;
    }
  }
  if (did && open_tensors_ == 0 && !stopping_) listener_->OnAllReduced();
  return did;
}

absl::Status SharedMemoryReducer::Reduce(size_t tensor, bool& any) {
  std::vector<uint32_t> ranks;  // that have a gradient
  std::vector<uint64_t> opens(peers_.size(), 0);
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank] != nullptr) opens[rank] = peers_[rank]->opens();
    if (StateOf(rank, tensor) == GradientState::kReady) ranks.push_back(rank);
  }
  any = !ranks.empty();
  const absl::Span<std::byte> own = gradients_.tensor(tensor);
  for (const Range& range : group_.ranges[tensor]) {
    if (range.rank != group_.rank || !any) continue;
    std::vector<RankGradient> gradients;
    for (const uint32_t rank : ranks) {
      if (rank == group_.rank) {
        gradients.push_back({own.data() + range.begin, weight_});
      } else {
        gradients.push_back({peers_[rank]->gradient(tensor) + range.begin, peers_[rank]->weight()});
      }
    }
    AddRanks(tensors_[tensor].dtype(), gradients, own.subspan(range.begin, range.bytes));
  }
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank] == nullptr) continue;
    if (peers_[rank]->Stands(opens[rank]) &&
        peers_[rank]->Get(tensor, step_) != GradientState::kPending) {
      continue;
    }
    return absl::AbortedError(absl::StrCat("rank ", rank, " of the node group has given up step ",
                                           step_, " while this one read its gradient of '",
                                           tensors_[tensor].name(), "'"));
  }
  return absl::OkStatus();
}

uint32_t SharedMemoryReducer::Slowest() const {
  uint32_t slowest = group_.rank;
  size_t most = 0;
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    size_t pending = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!reduced_[i] && StateOf(rank, i) == GradientState::kPending) ++pending;
    }
    if (pending <= most) continue;
    most = pending;
    slowest = rank;
  }
  return slowest;
}

void SharedMemoryReducer::Sleep(absl::Span<const uint32_t> heard) {
  const std::atomic<uint32_t>* word = nullptr;
  uint32_t rank = group_.rank;
  bool idle = open_tensors_ == 0;
  {
    absl::MutexLock lock(&mu_);
    if (watched_.has_value()) {
      rank = *watched_;
      idle = false;
    } else if (!idle) {
      rank = Slowest();
    }
    word = &BellOf(rank);
  }
  sleeps_on_ = word;
  if (!stopping_) FutexWait(*word, heard[rank], idle ? kIdleNap : kNap);
  sleeps_on_ = nullptr;
}

std::string SharedMemoryReducer::Missing() const {
  if (words_ == nullptr) return "";
  absl::MutexLock lock(&mu_);
  std::vector<std::string> missing;
  for (uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank == group_.rank) continue;
    const Member& member = group_.members[rank];
    const std::string who = absl::StrCat("rank ", rank, " (worker ", member.ordinal(), " at ",
                                         member.address(), ", pid ", member.pid(), ")");
    if (peers_[rank] == nullptr) {
      missing.push_back(absl::StrCat(
          who, " has not answered by its local name; do both see the same network namespace?"));
      continue;
    }
    size_t pending = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!reduced_[i] && StateOf(rank, i) == GradientState::kPending) ++pending;
    }
    if (pending != 0) {
      missing.push_back(
          absl::StrCat(who, " has not given ", pending, " of its gradients of step ", step_));
    }
  }
  return absl::StrJoin(missing, "; ");
}

}  // namespace parley
