#include "server/parameter_shard/decided_progress.h"

#include <vector>

#include "common/job/data_division.h"

namespace parley {

void DecidedProgress::Start(const ClusterView& view) {
  training_samples_ = view.training_samples();
  progress_.Clear();
  progress_.set_step(view.start_version());
  *progress_.mutable_position() = view.data_position();
}

absl::Status DecidedProgress::Check(uint64_t data_epoch, const Share& share) const {
  if (share.ranges().empty()) return absl::OkStatus();
  DataPosition position = progress_.position();
  return MarkUsed(position, data_epoch, {share.ranges().begin(), share.ranges().end()},
                  training_samples_);
}

absl::Status DecidedProgress::Add(const Verdict& verdict) {
  if (verdict.outcome() == Verdict::RETRY) {
    progress_.set_retried(progress_.retried() + 1);
    return absl::OkStatus();
  }
  std::vector<SampleRange> ranges;
  uint64_t samples = 0;
  for (const Share& share : verdict.shares()) {
    ranges.insert(ranges.end(), share.ranges().begin(), share.ranges().end());
    samples += share.samples();
  }
  if (!ranges.empty()) {
    // All at once: the last range of a data epoch moves the position on to the next.
    DataPosition position = progress_.position();
    if (absl::Status status = MarkUsed(position, verdict.data_epoch(), ranges, training_samples_);
        !status.ok()) {
      return status;
    }
    *progress_.mutable_position() = position;
  }
  progress_.set_step(verdict.step());
  progress_.set_samples(progress_.samples() + samples);
  if (verdict.outcome() == Verdict::APPLY) {
    progress_.set_applied(progress_.applied() + 1);
  } else {
    progress_.set_skipped(progress_.skipped() + 1);
  }
  return absl::OkStatus();
}

}  // namespace parley
