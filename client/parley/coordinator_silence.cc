#include "client/parley/coordinator_silence.h"

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr absl::Duration kGone = absl::Seconds(20);

}  // namespace

absl::Status CoordinatorSilence::Heard(const absl::Status& answer, absl::Time now,
                                       const std::string& what) {
  if (answer.ok()) heard_at_ = now;
  if (now - heard_at_ < kGone) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the coordinator has gone without a word of ", what,
                                             "; its log tells. ", answer.message()));
}

}  // namespace parley
