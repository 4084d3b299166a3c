#ifndef PARLEY_SERVER_COORDINATOR_DAMAGE_TEXT_H_
#define PARLEY_SERVER_COORDINATOR_DAMAGE_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace parley {

// What follows the message that a checkpoint is damaged: which other one a person can take...
inline std::string OfferOf(const std::string& folder, uint64_t step) {
  return absl::StrCat(
      ". The one before it, ", folder, ", is of step ", step,
      ": to go on from there set checkpoint.start_from to it, or let a job do so by "
      "itself with checkpoint.use_previous_if_damaged: true");
}

// ...or that there is none.
inline std::string NoOffer() { return ". There is no whole one of an earlier step beside it"; }

}  // namespace parley

#endif  // PARLEY_SERVER_COORDINATOR_DAMAGE_TEXT_H_
