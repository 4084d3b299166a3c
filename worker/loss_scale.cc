#include "worker/loss_scale.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace parley {

LossScale::LossScale(const JobConfig& job)
    : in_use_(job.precision() == FLOAT16_AUTOCAST),
      grows_(in_use_ && job.loss_scale().growth_interval() != 0),
      growth_interval_(job.loss_scale().growth_interval()) {
  if (in_use_) value_ = job.loss_scale().initial();
}

absl::Status LossScale::Decided(const Verdict& verdict) {
  if (!in_use_) return absl::OkStatus();
  if (verdict.outcome() == Verdict::APPLY) {
    skipped_ = 0;
    if (!grows_ || ++applied_ < growth_interval_) return absl::OkStatus();
    value_ = std::min(2 * value_, kMost);
    applied_ = 0;
  } else if (verdict.outcome() == Verdict::SKIP && !verdict.shares().empty()) {
    // Without shares nobody's gradients counted: it was late, or had no samples.
    if (++skipped_ == kMostSkipped) {
      return absl::FailedPreconditionError(
          absl::StrCat("training has diverged: the gradients of ", skipped_,
                       " steps one after the other were not finite (the loss scale is ", value_,
                       "); lower optimizer's rate, or use precision: BFLOAT16_AUTOCAST; last step ",
                       verdict.step()));
    }
    if (grows_) value_ = std::max(value_ / 2, 1.0);
    applied_ = 0;
  }
  return absl::OkStatus();
}

}  // namespace parley
