#ifndef PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_PARTITION_H_
#define PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_PARTITION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace parley {

// What one microbatch costs in one layer, measured on a machine of speed 1, and what the layer has.
struct LayerProfile {
  absl::Duration forward, backward;
  uint64_t output_bytes = 0;      // that the next layer gets
  uint64_t activation_bytes = 0;  // kept from its forward to its backward
  uint64_t parameter_bytes = 0;
};

// Where a part of the model is to run.
struct PartPlace {
  double speed = 1;           // twice as fast is 2 (HetPipe, Park et al. 2020)
  uint64_t memory_bytes = 0;  // that parameters and activations may take; 0: no limit
  // Microbatches whose activations it keeps at once, by its schedule.
  uint32_t live_microbatches = 1;
};

struct PartitionCosts {
  std::vector<LayerProfile> layers;
  std::vector<PartPlace> places;     // in the order of the parts
  double link_bytes_per_second = 0;  // of an activation on its way to the next part; 0: no time
};

struct Partition {
  std::vector<uint32_t> first_layers;  // of each part; the first one is 0
  // Of one microbatch in the slowest part, or on the slowest link, whose transfers go on beside the
  // computation: the pipeline takes about so long for each microbatch.
  absl::Duration slowest;
};

// Cuts the layers, in order, into as many parts as there are places, none without a layer, so that
// `slowest` is least (the dynamic programme of PipeDream, Narayanan et al. 2019, and DAPPLE, Fan et
// al. 2021); of cuts that are as good the one that sends the fewest bytes. A link is as slow as the
// larger of its two directions, which have as many bytes. InvalidArgument: no places, fewer layers
// than places, a speed that is not above 0. ResourceExhausted: no cut fits into the memory of the
// places.
absl::StatusOr<Partition> Balance(const PartitionCosts& costs);

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_SCHEDULE_PARTITION_H_
