#include "common/job/pipeline_places.h"

namespace parley {

PartPlace PartPlaceOf(Role role, uint32_t ordinal, uint32_t stages) {
  if (role != STAGE || stages == 0) return {ordinal, 0};
  return {ordinal / stages, 1 + ordinal % stages};
}

std::pair<Role, uint32_t> MemberPlaceOf(const PartPlace& place, uint32_t stages) {
  if (place.part == 0) return {WORKER, place.contributor};
  return {STAGE, place.contributor * stages + place.part - 1};
}

}  // namespace parley
