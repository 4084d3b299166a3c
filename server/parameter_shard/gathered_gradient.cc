#include "server/parameter_shard/gathered_gradient.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/nonzero_blocks.h"
#include "server/parameter_shard/sum_kernels.h"

namespace parley {

absl::Status LentIsWritten(uint32_t contributor) {
  return absl::AbortedError(absl::StrCat("contributor ", contributor,
                                         " has written again what it had lent for this step"));
}

void GatheredGradient::Sort() {
  if (std::exchange(sorted_, true)) return;
  std::sort(contributions_.begin(), contributions_.end(),
            [](const Contribution& a, const Contribution& b) {
              return std::tie(a.range.contributor, a.range.part) <
                     std::tie(b.range.contributor, b.range.part);
            });
}

bool GatheredGradient::Counts(const Contribution& contribution,
                              absl::Span<const uint32_t> contributors) const {
  return !apart_ || std::binary_search(contributors.begin(), contributors.end(),
                                       contribution.range.contributor);
}

absl::Status GatheredGradient::AddTo(absl::Span<const uint32_t> contributors, uint64_t begin,
                                     bool fresh, absl::Span<float> out) const {
  const uint64_t end = begin + out.size();
  absl::InlinedVector<const float*, 16> addends;  // in order, that cover all of `out`
  const auto add = [&] {
    if (addends.empty()) return;
    AddInOrder(addends, std::exchange(fresh, false), out);
    addends.clear();
  };
  for (const Contribution& contribution : contributions_) {
    const PartRange& range = contribution.range;
    if (!Counts(contribution, contributors) || range.begin >= end || range.end <= begin) continue;
    if (range.begin <= begin && range.end >= end) {
      addends.push_back(contribution.values + (begin - range.begin));
      continue;
    }
    add();
    if (std::exchange(fresh, false)) AddInOrder({}, /*fresh=*/true, out);
    const uint64_t from = std::max(begin, range.begin);
    const float* const values = contribution.values + (from - range.begin);
    AddInOrder({values}, /*fresh=*/false,
               out.subspan(from - begin, std::min(end, range.end) - from));
  }
  add();
  if (fresh) AddInOrder({}, /*fresh=*/true, out);
  return LentStands(contributors);
}

const GatheredGradient::Contribution* GatheredGradient::OnlyOne(
    absl::Span<const uint32_t> contributors, uint64_t from, uint64_t to) const {
  const Contribution* only = nullptr;
  for (const Contribution& contribution : contributions_) {
    const PartRange& range = contribution.range;
    if (!Counts(contribution, contributors) || range.begin >= to || range.end <= from) continue;
    if (started_ || only != nullptr || range.begin > from || range.end < to) return nullptr;
    only = &contribution;
  }
  return only;
}

bool GatheredGradient::IsKnownZero(absl::Span<const uint32_t> contributors, uint64_t begin,
                                   uint64_t end) const {
  if (started_) return false;
  bool covered = false;  // the sum of nothing is -0
  for (const Contribution& contribution : contributions_) {
    const PartRange& range = contribution.range;
    if (!Counts(contribution, contributors) || range.begin >= end || range.end <= begin) continue;
    covered = covered || (range.begin <= begin && range.end >= end);
    if (contribution.nonzero.empty() ||
        !AreZero(contribution.nonzero, std::max(begin, range.begin) - range.begin,
                 std::min(end, range.end) - range.begin)) {
      return false;
    }
  }
  return covered;
}

absl::Status GatheredGradient::LentStands(absl::Span<const uint32_t> contributors) const {
  for (const Contribution& contribution : contributions_) {
    if (Counts(contribution, contributors) && !contribution.loan.Stands()) {
      return LentIsWritten(contribution.range.contributor);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> GatheredGradient::SumOf(
    absl::Span<const uint32_t> contributors, uint64_t begin, absl::Span<float> out) const {
  const uint64_t end = begin + out.size();
  if (const Contribution* const only = OnlyOne(contributors, begin, end)) {
    if (!only->loan.Stands()) return LentIsWritten(only->range.contributor);
    const uint64_t from = begin - only->range.begin;
    if (only->nonzero.empty() || HoldAll(only->nonzero, from, from + out.size())) {
      return absl::Span<const float>(only->values + from, out.size());
    }
    // Nobody reads zeros from memory.
    ForRuns(only->nonzero, from, from + out.size(), [&](uint64_t run, uint64_t end, bool holds) {
      float* const to = out.data() + (run - from);
      if (holds) {
        std::copy_n(only->values + run, end - run, to);
      } else {
        std::fill_n(to, end - run, 0.0F);
      }
    });
    return out;
  }
  if (started_) {
    std::memcpy(out.data(), sum_->as<float>().data() + begin, out.size() * sizeof(float));
  }
  if (absl::Status added = AddTo(contributors, begin, !started_, out); !added.ok()) return added;
  return out;
}

}  // namespace parley
