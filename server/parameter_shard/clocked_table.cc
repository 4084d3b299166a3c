#include "server/parameter_shard/clocked_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/job/data_division.h"

namespace parley {

const std::vector<double>& StalenessCounts::Bounds() {
  static const auto* const bounds =
      new std::vector<double>{0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128};
  return *bounds;
}

void StalenessCounts::Add(uint64_t staleness) {
  const auto& bounds = Bounds();
  const double value = static_cast<double>(staleness);
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value);
  ++buckets[static_cast<size_t>(bucket - bounds.begin())];
  sum += value;
}

void StalenessCounts::Add(const StalenessCounts& others) {
  for (size_t i = 0; i < buckets.size(); ++i) buckets[i] += others.buckets[i];
  sum += others.sum;
}

namespace {

// Data epochs that one contribution of each worker uses.
double EpochsOfAll(const JobConfig& job, uint64_t training_samples, uint64_t workers) {
  const uint64_t nominal = std::max(NominalSamples(job), uint64_t{1});
  // The last one of a data epoch may be small, and counts as well.
  const uint64_t of_an_epoch = training_samples / nominal + (training_samples % nominal != 0);
  return of_an_epoch == 0 ? 0 : static_cast<double>(workers) / static_cast<double>(of_an_epoch);
}

}  // namespace

ClockedTable::ClockedTable(const JobConfig& job, ParameterTable* table, uint64_t training_samples)
    : job_(job),
      table_(table),
      workers_(std::max(job.cluster().workers(), uint32_t{1})),
      epochs_(EpochsOfAll(job, training_samples, workers_)),
      lambda_(job.consistency().async().delay_compensation()) {}

StepPlace ClockedTable::PlaceOf(uint64_t updates) const {
  const uint64_t done = updates / workers_;
  return {.step = 1 + done, .epochs_done = static_cast<double>(done) * epochs_, .epochs = epochs_};
}

double ClockedTable::RateFactor(const StepPlace& place, uint64_t staleness) const {
  const double factor = LearningRateFactor(job_, place);
  if (!job_.consistency().async().divide_rate_by_staleness()) return factor;
  return factor / static_cast<double>(std::max(staleness, uint64_t{1}));
}

absl::StatusOr<PushOutcome> ClockedTable::Push(const Caller& caller, const PartRange& range,
                                               const TensorSlice& data, double scale, uint64_t seen,
                                               bool takes_buffers) {
  TableSlice& slice = *table_->Find(data.slice);
  OneSlice& own = slices_[data.slice];
  Last& last = own.last[caller.contributor];
  if (std::tie(caller.attempt, caller.clock) <= std::tie(last.attempt, last.clock)) {
    return DUPLICATE;
  }
  const uint64_t updates = slice.version();
  const uint64_t staleness = updates - std::min(updates, seen);
  const Async& async = job_.consistency().async();
  // Not remembered: a repetition is refused again, since staleness only grows.
  if (!slice.buffer() && async.has_max_staleness() && staleness > async.max_staleness()) {
    return STALE;
  }
  const StepPlace place = PlaceOf(updates);
  LoneUpdate update;
  update.scale = scale;
  update.rate_factor = RateFactor(place, staleness);
  update.delay_compensation = lambda_;
  if (const auto pulled = own.pulled.find(caller.contributor); pulled != own.pulled.end()) {
    if (pulled->second.attempt == caller.attempt && pulled->second.clock == caller.clock) {
      update.seen = pulled->second.values.values;
    }
    // Before the update, which then need not copy for a pin that nobody looks at any more.
    if (pulled->second.attempt == caller.attempt) own.pulled.erase(pulled);
  }
  if (!slice.buffer() && slice.FrozenAt(place)) {
    slice.Raise(updates + 1);
  } else if (!slice.buffer() || takes_buffers) {
    if (absl::Status status = slice.ApplyAlone(range, data, std::move(update)); !status.ok()) {
      return status;
    }
  }
  last = {caller.attempt, caller.clock};
  unchanged_ = false;
  ++updates_;
  if (!slice.buffer()) staleness_.Add(staleness);
  return ADDED;
}

ClockedTable::Values ClockedTable::Keep(uint32_t slice, const Caller& caller, Values values) {
  if (lambda_ == 0 || caller.clock == 0 || table_->Find(slice)->buffer()) return values;
  OneSlice& own = slices_[slice];
  const Last& last = own.last[caller.contributor];
  // A late repetition, of a clock that is over, must not take the place of what counts.
  if (std::tie(caller.attempt, caller.clock) <= std::tie(last.attempt, last.clock)) return values;
  Pulled& pulled = own.pulled[caller.contributor];
  const auto kept = std::tie(pulled.attempt, pulled.clock);
  const auto asked = std::tie(caller.attempt, caller.clock);
  if (kept == asked) return pulled.values;
  if (kept < asked) pulled = {caller.attempt, caller.clock, values};
  return values;
}

ClockedTable::Values ClockedTable::PullNewest(uint32_t slice, const Caller& caller) {
  const TableSlice& found = *table_->Find(slice);
  return Keep(slice, caller, {found.PinVersion(found.version()), found.version()});
}

std::optional<ClockedTable::Values> ClockedTable::PullNamed(uint32_t slice, uint64_t start_version,
                                                            const Caller& caller) {
  const std::optional<Values>& named = slices_[slice].named;
  if (named.has_value()) return Keep(slice, caller, *named);
  PinnedBuffer start = table_->Find(slice)->PinVersion(start_version);
  if (start == nullptr) return std::nullopt;
  return Keep(slice, caller, {std::move(start), start_version});
}

void ClockedTable::NameVersion() {
  for (const auto& [id, slice] : table_->slices()) {
    slices_[id].named = Values{slice.PinVersion(slice.version()), slice.version()};
  }
  unchanged_ = true;
}

bool ClockedTable::HasPushOf(const Caller& caller) const {
  return std::any_of(slices_.begin(), slices_.end(), [&](const auto& entry) {
    const auto last = entry.second.last.find(caller.contributor);
    return last != entry.second.last.end() && last->second.attempt == caller.attempt &&
           last->second.clock == caller.clock;
  });
}

void ClockedTable::KeepOnly(const std::map<uint32_t, uint32_t>& present) {
  for (auto& [id, slice] : slices_) {
    for (auto it = slice.pulled.begin(); it != slice.pulled.end();) {
      const auto now = present.find(it->first);
      const bool stays = now != present.end() && now->second == it->second.attempt;
      it = stays ? std::next(it) : slice.pulled.erase(it);
    }
  }
}

}  // namespace parley
