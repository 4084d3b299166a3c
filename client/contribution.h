#ifndef PARLEY_CLIENT_CONTRIBUTION_H_
#define PARLEY_CLIENT_CONTRIBUTION_H_

#include <cstddef>
#include <string>

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"

namespace parley {

// Sets `out` to the elements of a float32 gradient rounded to BF16 or F16: half of the bytes, for
// the wire. The shard adds them in float32. `gradient` is aligned for float.
void Narrow(DataType narrow, absl::Span<const std::byte> gradient, std::string* out);

// The narrow type that the job asks for (JobConfig.gradients_on_wire); DATA_TYPE_UNSPECIFIED: none.
DataType OnWire(const JobConfig& job);

// How many bytes of slices travel together (JobConfig.bucket_kib).
size_t BucketBytes(const JobConfig& job);

}  // namespace parley

#endif  // PARLEY_CLIENT_CONTRIBUTION_H_
