#include "client/parameter_puller.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

// A piece of the values, for one thread.
struct Copy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
};
constexpr size_t kCopyBytes = 256 << 10;
// For so many bytes it is worth to wake other threads.
constexpr size_t kParallelBytes = 1 << 20;
// From so many groups on the first calls are for less.
constexpr size_t kManyGroups = 8;
constexpr size_t kFirstOfGroup = 16;

void AddCopies(const TensorBytes& bytes, std::byte* to, std::vector<Copy>& copies) {
  for (TensorBytes::Piece piece : bytes.pieces()) {
    while (!piece.empty()) {
      const size_t count = std::min(piece.size(), kCopyBytes);
      copies.push_back({piece.data(), to, count});
      piece.remove_prefix(count);
      to += count;
    }
  }
}

}  // namespace

std::shared_ptr<ParameterPuller::Progress> ParameterPuller::Make(const What& what, bool ahead) {
  auto progress = std::make_shared<Progress>();
  progress->what = what;
  progress->ahead = ahead;
  // Ahead of the verdict all ranks ask alike, for what comes after it.
  Divide(ahead || what.lasting, *progress);
  progress->next.assign(layout_.by_shard().size(), 0);
  progress->most.assign(layout_.by_shard().size(), group_bytes_);
  progress->asked.assign(layout_.by_shard().size(), false);
  AskShards(progress);
  return progress;
}

void ParameterPuller::Divide(bool from_ranks, Progress& progress) const {
  progress.slices = layout_.by_shard();
  for (std::vector<PlacedSlice>& slices : progress.slices) {
    auto begin = slices.begin();
    for (const PullTurn turn : {PullTurn::kBuffers, PullTurn::kTiny}) {
      begin = std::stable_partition(
          begin, slices.end(), [&](const PlacedSlice& slice) { return TurnOf(slice) == turn; });
    }
  }
  if (reducer_ == nullptr || !from_ranks) return;
  for (uint32_t shard = 0; shard < progress.slices.size(); ++shard) {
    // What a shard here shows moves no bytes.
    if (calls_.ReadsLentMemory(shard)) continue;
    std::vector<PlacedSlice> own;
    for (const PlacedSlice& slice : progress.slices[shard]) {
      const std::optional<uint32_t> owner = layout_.OwnerOf(slice.slice);
      const bool mine = !owner.has_value() || *owner == layout_.part();
      (mine ? own : progress.of_ranks).push_back(slice);
    }
    progress.slices[shard] = std::move(own);
  }
}

Reducer::Values ParameterPuller::ValuesOf(const PlacedSlice& slice, const What& what) const {
  return {.slice = slice.slice,
          .rank = layout_.OwnerOf(slice.slice).value_or(layout_.part()),
          .version = what.version,
          .bytes = slice.bytes};
}

void ParameterPuller::HandRound(const PlacedSlice& slice, const What& what, bool is_local) {
  if (reducer_ == nullptr || !what.lasting || layout_.OwnerOf(slice.slice) != layout_.part()) {
    return;
  }
  if (is_local) {
    reducer_->Withhold(ValuesOf(slice, what));
  } else {
    reducer_->Share(ValuesOf(slice, what),
                    parameters_.tensor(slice.tensor).subspan(slice.begin, slice.bytes));
  }
}

absl::Status ParameterPuller::TakeOfRanks(const std::shared_ptr<Progress>& progress) {
  std::vector<PlacedSlice> pending;
  std::vector<PlacedSlice> of_ranks = std::exchange(progress->of_ranks, {});
  for (const PlacedSlice& slice : of_ranks) {
    const absl::StatusOr<std::byte*> to = parameters_.Own(slice.tensor, slice.begin, slice.bytes);
    if (!to.ok()) return to.status();
    switch (reducer_->Take(ValuesOf(slice, progress->what), {*to, slice.bytes})) {
      case Reducer::Taken::kTaken:
        arrived_.Add(slice);
        break;
      case Reducer::Taken::kPending:
        pending.push_back(slice);
        break;
      case Reducer::Taken::kWithheld:
        progress->slices[slice.shard].push_back(slice);
        AskNext(slice.shard, progress);
        break;
    }
  }
  progress->of_ranks = std::move(pending);
  if (!progress->of_ranks.empty()) {
    reducer_->Watch(ValuesOf(progress->of_ranks.front(), progress->what).rank);
  }
  return absl::OkStatus();
}

void ParameterPuller::AskShards(const std::shared_ptr<Progress>& progress) {
  for (size_t shard = 0; shard < layout_.by_shard().size(); ++shard) {
    if (progress->asked[shard]) continue;
    if (progress->ahead && !calls_.KeepsOrder(static_cast<uint32_t>(shard))) continue;
    progress->asked[shard] = true;
    progress->most[shard] = FirstCall(progress->slices[shard]);
    for (size_t call = 0; call < calls_per_shard_; ++call) AskNext(shard, progress);
  }
}

size_t ParameterPuller::FirstCall(absl::Span<const PlacedSlice> slices) const {
  size_t bytes = 0;
  for (const PlacedSlice& slice : slices) bytes += slice.bytes;
  return bytes < kManyGroups * group_bytes_ ? group_bytes_ : group_bytes_ / kFirstOfGroup;
}

void ParameterPuller::Ask(uint64_t version) {
  if (ahead_ != nullptr && ahead_->what.version == version) return;
  if (ahead_ != nullptr) ahead_->abandoned = true;
  ahead_ = Make({.version = version}, /*ahead=*/true);
}

std::vector<uint32_t> ParameterPuller::AllOf(uint32_t shard, size_t most_bytes) {
  Progress divided;
  Divide(/*from_ranks=*/true, divided);
  asked_with_verdict_ = std::move(divided.slices[shard]);
  std::vector<uint32_t> all;
  size_t bytes = 0;
  for (const PlacedSlice& slice : asked_with_verdict_) {
    bytes += slice.bytes;
    all.push_back(slice.slice);
  }
  return bytes <= most_bytes ? all : std::vector<uint32_t>();
}

void ParameterPuller::Give(uint64_t version, uint32_t shard, TensorPull pulled) {
  Ask(version);
  if (ahead_->asked[shard]) return;  // it brings them itself
  // What is not among them (the shard may have come into sight meanwhile) is asked for after them.
  const std::vector<PlacedSlice>& came = asked_with_verdict_;
  std::vector<PlacedSlice> slices = came;
  for (const PlacedSlice& slice : ahead_->slices[shard]) {
    const bool is_here = std::any_of(
        came.begin(), came.end(), [&](const PlacedSlice& one) { return one.slice == slice.slice; });
    if (!is_here) slices.push_back(slice);
  }
  ahead_->slices[shard] = std::move(slices);
  ahead_->asked[shard] = true;
  ahead_->next[shard] = came.size();
  ++ahead_->open;
  ahead_->came.push_back({shard, came, std::move(pulled)});
}

std::shared_ptr<ParameterPuller::Progress> ParameterPuller::Resume(const What& what) {
  const std::shared_ptr<Progress> progress = std::exchange(ahead_, nullptr);
  if (progress == nullptr) return Make(what, /*ahead=*/false);
  // What was refused may have been asked too early.
  if (progress->what.version != what.version || what.clock != 0 || what.newest ||
      !progress->error.ok()) {
    progress->abandoned = true;
    return Make(what, /*ahead=*/false);
  }
  progress->ahead = false;
  progress->what = what;
  if (!what.lasting) {
    for (const PlacedSlice& slice : std::exchange(progress->of_ranks, {})) {
      progress->slices[slice.shard].push_back(slice);
    }
  }
  AskShards(progress);
  TakeAndAsk(std::exchange(progress->came, {}), progress);
  return progress;
}

void ParameterPuller::Abandon() {
  for (std::shared_ptr<Progress>* const progress : {&ahead_, &current_}) {
    if (*progress != nullptr) (*progress)->abandoned = true;
    progress->reset();
  }
}

void ParameterPuller::Begin(const What& what) {
  if (current_ != nullptr) current_->abandoned = true;
  arrived_.Begin();
  current_ = Resume(what);
}

absl::Status ParameterPuller::Await(std::optional<Some> some, const Wait& wait) {
  const std::shared_ptr<Progress> progress = current_;
  const auto is_here = [&] {
    return some.has_value() && arrived_.HasUntil(some->tensor, some->until);
  };
  if (progress == nullptr || is_here()) return absl::OkStatus();
  const absl::Status waited = wait([&] {
    if (!progress->of_ranks.empty() && progress->error.ok()) {
      progress->error = TakeOfRanks(progress);
    }
    return IsWhole(*progress) || !progress->error.ok() || is_here();
  });
  // While nobody waits, nobody is late.
  if (reducer_ != nullptr) reducer_->Watch(std::nullopt);
  const absl::Status status = waited.ok() ? progress->error : waited;
  if (!status.ok() || IsWhole(*progress)) {
    progress->abandoned = true;
    current_.reset();
  }
  return status;
}

absl::Status ParameterPuller::Pull(const What& what, const Wait& wait) {
  Begin(what);
  return Await(std::nullopt, wait);
}

void ParameterPuller::AskNext(size_t shard, const std::shared_ptr<Progress>& progress) {
  const std::vector<PlacedSlice>& slices = progress->slices[shard];
  size_t& next = progress->next[shard];
  if (next == slices.size()) return;
  const What& what = progress->what;
  std::vector<PlacedSlice> asked;
  auto request = std::make_shared<PullRequest>();
  request->set_version(what.version);
  request->set_clock(what.clock);
  request->set_contributor(what.contributor);
  request->set_named(what.clock != 0 && !what.newest);
  size_t& most = progress->most[shard];
  const PullTurn turn = TurnOf(slices[next]);
  for (size_t bytes = 0; next < slices.size() && bytes < most; ++next) {
    if (most < group_bytes_ && TurnOf(slices[next]) != turn) break;
    bytes += slices[next].bytes;
    request->add_slices(slices[next].slice);
    asked.push_back(slices[next]);
  }
  if (turn == PullTurn::kOthers) most = std::min(2 * most, group_bytes_);
  ++progress->open;
  calls_.Pull(
      static_cast<uint32_t>(shard), std::move(request),
      [this, shard, progress, asked](absl::StatusOr<TensorPull> reply) {
        if (progress->abandoned) return;
        if (!reply.ok()) {
          --progress->open;
          if (progress->error.ok()) progress->error = reply.status();
        } else {
          OnAnswer({shard, asked, *std::move(reply)}, progress);
        }
      },
      progress->ahead);
}

void ParameterPuller::OnAnswer(Progress::Answer answer, const std::shared_ptr<Progress>& progress) {
  if (progress->ahead) {
    progress->came.push_back(std::move(answer));
    return;
  }
  TakeAndAsk({&answer, 1}, progress);
}

void ParameterPuller::TakeAndAsk(absl::Span<const Progress::Answer> answers,
                                 const std::shared_ptr<Progress>& progress) {
  progress->open -= answers.size();
  const absl::Status taken = Take(progress->what, answers);
  if (progress->error.ok()) progress->error = taken;
  for (const Progress::Answer& answer : answers) {
    if (taken.ok()) AskNext(answer.shard, progress);
  }
}

absl::Status ParameterPuller::Check(const What& what, const Progress::Answer& answer) const {
  const TensorPull& pulled = answer.pulled;
  const auto misfit = [&](const std::string& with) {
    return absl::InternalError(absl::StrCat("shard ", answer.shard, " answered a pull of version ",
                                            what.version, " with ", with));
  };
  if (!what.newest && pulled.head.version() != what.version) {
    return misfit(absl::StrCat("version ", pulled.head.version()));
  }
  if (pulled.slices.size() != answer.asked.size()) {
    return misfit(absl::StrCat(pulled.slices.size(), " slices instead of ", answer.asked.size()));
  }
  for (size_t i = 0; i < answer.asked.size(); ++i) {
    const PlacedSlice& asked = answer.asked[i];
    const TensorSlice& slice = pulled.slices[i];
    if (slice.slice != asked.slice || slice.dtype != tensors_[asked.tensor].dtype() ||
        slice.bytes.size() != asked.bytes) {
      return misfit(absl::StrCat("another slice than ", asked.slice));
    }
  }
  return absl::OkStatus();
}

absl::Status ParameterPuller::Take(const What& what, absl::Span<const Progress::Answer> answers) {
  std::vector<Copy> copies;
  size_t bytes = 0;
  for (const Progress::Answer& answer : answers) {
    if (absl::Status fits = Check(what, answer); !fits.ok()) return fits;
    for (size_t i = 0; i < answer.asked.size(); ++i) {
      const PlacedSlice& asked = answer.asked[i];
      const TensorSlice& slice = answer.pulled.slices[i];
      bytes += asked.bytes;
      if (what.lasting) {
        const absl::StatusOr<bool> shown = parameters_.Show(asked.tensor, asked.begin, slice);
        if (!shown.ok()) return shown.status();
        if (*shown) continue;
      }
      const absl::StatusOr<std::byte*> to = parameters_.Own(asked.tensor, asked.begin, asked.bytes);
      if (!to.ok()) return to.status();
      AddCopies(slice.bytes, *to, copies);
    }
  }
  pulled_bytes_ += bytes;
  RunInParallel(copies.size() * kCopyBytes < kParallelBytes ? ParallelFor() : parallel_,
                copies.size(),
                [&](size_t i) { std::memcpy(copies[i].to, copies[i].from, copies[i].bytes); });
  for (const Progress::Answer& answer : answers) {
    const google::protobuf::RepeatedField<uint64_t>& updates = answer.pulled.head.updates();
    for (size_t i = 0; i < answer.asked.size(); ++i) {
      const TensorSlice& slice = answer.pulled.slices[i];
      if (slice.loan.has_value() && !slice.loan->Stands()) {
        return absl::UnavailableError(absl::StrCat("shard ", answer.shard, " has written slice ",
                                                   slice.slice, " again before it was read"));
      }
      const PlacedSlice& asked = answer.asked[i];
      arrived_.Add(asked);
      HandRound(asked, what, /*is_local=*/slice.loan.has_value());
      if (i >= static_cast<size_t>(updates.size())) continue;
      if (updates_.size() <= slice.slice) updates_.resize(slice.slice + 1);
      updates_[slice.slice] = updates[static_cast<int>(i)];
    }
  }
  return absl::OkStatus();
}

}  // namespace parley
