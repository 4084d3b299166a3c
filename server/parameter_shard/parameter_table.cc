#include "server/parameter_shard/parameter_table.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/checkpoints.h"
#include "common/job/consistency.h"

namespace parley {
namespace {

// Below this (1 MiB of float32) it takes longer to wake a thread than to do the work.
constexpr uint64_t kParallelElements = 1 << 18;

// Behind the last step, as far as it is known.
StepPlace EndOf(const JobConfig& job) {
  StepPlace end{.step = std::numeric_limits<uint64_t>::max(),
                .epochs_done = std::numeric_limits<double>::infinity()};
  if (job.has_steps()) {
    end.step = job.steps();
  } else if (job.has_epochs()) {
    end.epochs_done = static_cast<double>(job.epochs());
  }
  return end;
}

void AddNone(const google::protobuf::RepeatedPtrField<NoGradient>& none, Counted& counted) {
  for (const NoGradient& entry : none) {
    std::set<PartIdentity>& parts = counted.none[entry.slice()];
    for (int i = 0; i < entry.contributors_size(); ++i) {
      parts.emplace(entry.contributors(i), i < entry.parts_size() ? entry.parts(i) : 0);
    }
  }
}

// Calls visit(part, routing) for each part of an own slice that the contributors that count send,
// until it returns false.
template <class Visit>
void ForEachPart(const Counted& counted, OpenRoutings routings, uint32_t slice, Visit visit) {
  for (const uint32_t contributor : counted.contributors) {
    const auto has = [&](const Routing* r) { return r->FindContributor(contributor) != nullptr; };
    const auto routing = std::find_if(routings.begin(), routings.end(), has);
    if (routing == routings.end()) continue;
    for (const PartRange& part : (*routing)->PartsOf(slice)) {
      if (part.contributor == contributor && !visit(part, **routing)) return;
    }
  }
}

absl::Status FirstError(absl::Span<const absl::Status> results) {
  const auto error = std::find_if(results.begin(), results.end(),
                                  [](const absl::Status& result) { return !result.ok(); });
  return error == results.end() ? absl::OkStatus() : *error;
}

bool DeclaredNone(const Counted& counted, uint32_t slice, PartIdentity part) {
  const auto it = counted.none.find(slice);
  return it != counted.none.end() && it->second.count(part) != 0;
}

}  // namespace

Counted Counted::From(const CloseRequest& close) {
  Counted counted;
  counted.contributors.assign(close.contributors().begin(), close.contributors().end());
  std::sort(counted.contributors.begin(), counted.contributors.end());
  counted.total_weight = close.total_weight();
  AddNone(close.none(), counted);
  return counted;
}

Counted Counted::From(const Verdict& verdict) {
  Counted counted;
  for (const Share& share : verdict.shares()) {
    counted.contributors.push_back(share.contributor());
    if (share.weight() > 0) counted.weights[share.contributor()] = share.weight();
  }
  std::sort(counted.contributors.begin(), counted.contributors.end());
  counted.total_weight = verdict.total_weight();
  AddNone(verdict.none(), counted);
  return counted;
}

ParameterTable::ParameterTable(const JobConfig& job, const Routing& routing,
                               ShardResources resources)
    : apart_(job.consistency().sync().deterministic() || job.consistency().sync().backup() > 0),
      sum_(SumsContributions(job)),
      checkpoints_(CheckpointsWhileTraining(job)),
      ahead_from_(job.consistency().sync().update_ahead() && resources.ahead != nullptr
                      ? std::max<uint64_t>(resources.ahead_from, 1)
                      : 0),
      end_(EndOf(job)),
      has_room_ahead_(std::make_shared<std::atomic<bool>>(false)),
      parallel_(std::move(resources.parallel)),
      value_pool_(resources.memory) {
  const TableSlice::Reduction reduction{.apart = apart_,
                                        .average = job.consistency().sync().buffers() == AVERAGE,
                                        .sparse = ahead_from_ != 0};
  for (const uint32_t id : routing.own_slices()) {
    const TensorSpec& tensor = routing.tensor(id);
    slices_.emplace(
        std::piecewise_construct, std::forward_as_tuple(id),
        std::forward_as_tuple(routing.slice(id), tensor, SettingsFor(job, tensor.name()), reduction,
                              &value_pool_, &pool_));
  }
}

TableSlice* ParameterTable::Find(uint32_t slice) {
  const auto it = slices_.find(slice);
  return it == slices_.end() ? nullptr : &it->second;
}

bool ParameterTable::ready() const {
  ready_ = ready_ || std::all_of(slices_.begin(), slices_.end(),
                                 [](const auto& entry) { return entry.second.set(); });
  return ready_;
}

std::function<void()> ParameterTable::Reservation() const {
  if (!checkpoints_ && ahead_from_ == 0) return nullptr;
  std::map<size_t, size_t> values;
  std::map<size_t, size_t> states;
  const auto reserve = [&](const TableSlice& slice) {
    ++values[slice.value_bytes()];
    if (slice.state_bytes() != 0) ++states[slice.state_bytes()];
  };
  for (const auto& [id, slice] : slices_) {
    if (checkpoints_) reserve(slice);
    if (MayBeAhead(slice)) reserve(slice);
  }
  return [values = value_pool_.Reservation(std::move(values)),
          states = pool_.Reservation(std::move(states)), has_room = has_room_ahead_] {
    values();
    states();
    *has_room = true;
  };
}

bool ParameterTable::MayBeAhead(const TableSlice& slice) const {
  return ahead_from_ != 0 && !slice.buffer() && slice.elements() >= ahead_from_ &&
         !slice.FrozenAt(end_);
}

std::vector<uint32_t> ParameterTable::NotSet() const {
  std::vector<uint32_t> missing;
  for (const auto& [id, slice] : slices_) {
    if (!slice.set()) missing.push_back(id);
  }
  return missing;
}

bool Counted::Has(uint32_t contributor) const {
  return std::binary_search(contributors.begin(), contributors.end(), contributor);
}

absl::Status ParameterTable::Verify(const Counted& counted, OpenRoutings routings) const {
  for (const uint32_t contributor : counted.contributors) {
    const auto has = [&](const Routing* r) { return r->FindContributor(contributor) != nullptr; };
    if (std::any_of(routings.begin(), routings.end(), has)) continue;
    // It has come and gone in views that this shard never had: nothing of it can be here.
    for (const auto& [id, slice] : slices_) {
      if (DeclaredNone(counted, id, {contributor, 0})) continue;
      return absl::InternalError(absl::StrCat("contributor ", contributor, " counts in ",
                                              slice.name(), ", but is in no view of this shard"));
    }
  }
  for (const auto& [id, slice] : slices_) {
    absl::Status status;
    const auto check = [&, id = id, &slice = slice](const PartRange& part, const Routing& routing) {
      const bool here = slice.Has(part.contributor, part.part);
      const bool none = DeclaredNone(counted, id, {part.contributor, part.part});
      if (here != none) return true;
      status = absl::InternalError(
          absl::StrCat("part ", part.part, " of contributor ", part.contributor, " (",
                       routing.Describe(routing.SenderOf(part.contributor, part.part)),
                       ") for slice ", slice.name(),
                       here ? " is here, but was declared to have no gradient"
                            : " counts in this step, but is not here"));
      return false;
    };
    ForEachPart(counted, routings, id, check);
    if (!status.ok()) return status;
    if (apart_ || slice.buffer()) continue;
    for (const auto& [contributor, part] : slice.identities()) {
      if (counted.Has(contributor)) continue;
      return absl::InternalError(absl::StrCat("the sum of slice ", slice.name(), " holds part ",
                                              part, " of contributor ", contributor,
                                              ", which does not count"));
    }
  }
  return absl::OkStatus();
}

bool ParameterTable::Untouched(uint32_t id, const TableSlice& slice, const Counted& counted,
                               OpenRoutings routings) const {
  // Nothing to divide by: nobody had data.
  if (!sum_ && !(counted.total_weight > 0)) return true;
  if (!slice.buffer() && slice.FrozenAt(place_)) return true;
  bool untouched = true;
  ForEachPart(counted, routings, id, [&](const PartRange& part, const Routing&) {
    untouched = DeclaredNone(counted, id, {part.contributor, part.part});
    return untouched;
  });
  return untouched;
}

float ParameterTable::Divisor(const Counted& counted) const {
  return sum_ ? 1.0f : static_cast<float>(counted.total_weight);
}

void ParameterTable::ForEach(uint64_t elements, size_t parts,
                             const std::function<void(size_t)>& body) const {
  RunInParallel(elements < kParallelElements ? ParallelFor() : parallel_, parts, body);
}

void ParameterTable::Open(const StepPlace& place, double rate_factor) {
  place_ = place;
  rate_factor_ = rate_factor;
}

absl::StatusOr<CloseReply> ParameterTable::Reduce(const Counted& counted, OpenRoutings routings) {
  std::vector<TableSlice*> slices;
  uint64_t elements = 0;
  CloseReply reply;
  for (auto& [id, slice] : slices_) {
    if (slice.buffer() || Untouched(id, slice, counted, routings)) continue;
    slices.push_back(&slice);
    elements += slice.elements();
    reply.add_norms();
  }
  std::vector<char> finite(slices.size(), 1);
  std::vector<absl::Status> results(slices.size());
  ForEach(elements, slices.size(), [&](size_t i) {
    bool is_finite = true;
    results[i] = slices[i]->Reduce(counted.contributors, Divisor(counted),
                                   *reply.mutable_norms(static_cast<int>(i)), is_finite);
    finite[i] = is_finite;
  });
  if (absl::Status error = FirstError(results); !error.ok()) return error;
  reply.set_finite(std::find(finite.begin(), finite.end(), 0) == finite.end());
  return reply;
}

StepWork ParameterTable::Decide(const Verdict& verdict, const Counted& counted,
                                OpenRoutings routings) {
  SliceUpdate update;
  update.step = verdict.step();
  update.divisor = Divisor(counted);
  update.clip_scale = static_cast<float>(verdict.clip_scale());
  update.rate_factor = rate_factor_ * verdict.rate_scale();
  if (verdict.outcome() == Verdict::APPLY) Learn({update.divisor, verdict.rate_scale()});
  // Each slice is come to once, of each turn: they are far apart in memory, and a step waits.
  std::vector<std::vector<std::pair<uint32_t, TableSlice*>>> turns(std::size(kPullTurns));
  for (auto& [id, slice] : slices_) {
    // Of a skipped step nothing remains, a buffer's new value neither: it may not be finite.
    if (verdict.outcome() == Verdict::SKIP || Untouched(id, slice, counted, routings)) {
      slice.Raise(verdict.step());
      continue;
    }
    slice.CallOffAhead();
    const PullTurn turn = TurnOf(slice.buffer(), slice.elements() * sizeof(float));
    const auto* const place = std::find(std::begin(kPullTurns), std::end(kPullTurns), turn);
    turns[static_cast<size_t>(place - std::begin(kPullTurns))].emplace_back(id, &slice);
  }
  StepWork work(update, counted.contributors, counted.weights, verdict.checkpoint());
  for (size_t i = 0; i < turns.size(); ++i) {
    for (const auto& [id, slice] : turns[i]) work.Add(kPullTurns[i], id, *slice);
  }
  return work;
}

absl::Status ParameterTable::CarryOut(StepWork& work) const {
  std::vector<absl::Status> results(work.pieces());
  ForEach(work.elements(), work.pieces(), [&](size_t piece) { results[piece] = work.Run(piece); });
  return FirstError(results);
}

void ParameterTable::Learn(const Expected& last) {
  const bool again =
      last_.has_value() && last.divisor == last_->divisor && last.rate_scale == last_->rate_scale;
  if (again || !expected_.has_value()) expected_ = last;
  last_ = last;
}

std::optional<SliceUpdate> ParameterTable::Expect(absl::Span<const uint32_t> contributors) const {
  if (!*has_room_ahead_ || !expected_.has_value() || !(expected_->divisor > 0)) return std::nullopt;
  SliceUpdate update;
  update.step = place_.step;
  update.contributors = contributors;
  update.divisor = expected_->divisor;
  update.rate_factor = rate_factor_ * expected_->rate_scale;
  return update;
}

std::shared_ptr<AheadUpdate> ParameterTable::UpdateAhead(uint32_t id,
                                                         absl::Span<const uint32_t> contributors) {
  TableSlice* const slice = Find(id);
  if (slice == nullptr || !MayBeAhead(*slice) || slice->FrozenAt(place_)) return nullptr;
  const std::optional<SliceUpdate> update = Expect(contributors);
  return update.has_value() ? slice->UpdateAhead(*update) : nullptr;
}

std::vector<std::shared_ptr<AheadUpdate>> ParameterTable::UpdateAheadOfGradients(
    absl::Span<const uint32_t> contributors) {
  std::vector<std::shared_ptr<AheadUpdate>> updates;
  const std::optional<SliceUpdate> update = Expect(contributors);
  if (!update.has_value()) return updates;
  for (auto& [id, slice] : slices_) {
    if (!MayBeAhead(slice) || slice.FrozenAt(place_)) continue;
    if (auto of_zeros = slice.UpdateAheadOfGradient(*update))
      updates.push_back(std::move(of_zeros));
  }
  return updates;
}

absl::Status ParameterTable::Settle() {
  CallOffAhead();
  for (auto& [id, slice] : slices_) {
    if (absl::Status status = slice.Settle(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void ParameterTable::CallOffAhead() {
  for (auto& [id, slice] : slices_) slice.CallOffAhead();
}

ParameterTable::AheadCounts ParameterTable::Drop() {
  CallOffAhead();
  AheadCounts counts;
  for (auto& [id, slice] : slices_) {
    const TableSlice::Ahead ahead = slice.Drop();
    counts.taken += ahead == TableSlice::Ahead::kTaken ? 1 : 0;
    counts.dropped += ahead == TableSlice::Ahead::kDropped ? 1 : 0;
  }
  return counts;
}

}  // namespace parley
