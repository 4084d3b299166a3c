#ifndef PARLEY_WORKER_DATA_DATA_SOURCE_H_
#define PARLEY_WORKER_DATA_DATA_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// What one sample's x or y looks like in memory: row-major, no padding.
struct SampleLayout {
  DataType dtype = DATA_TYPE_UNSPECIFIED;
  std::vector<int64_t> shape;  // without the dimension of the samples

  // Of one sample.
  size_t bytes() const;
};

// A set of samples (x, y) that can be read in any order. Immutable, hence thread-safe.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual uint64_t size() const = 0;  // samples
  virtual const SampleLayout& x() const = 0;
  virtual const SampleLayout& y() const = 0;

  // Writes the samples one after the other; the spans have samples.size() * x().bytes() and *
  // y().bytes() bytes. OutOfRange where a sample is not in the set.
  virtual absl::Status Fill(absl::Span<const uint64_t> samples, absl::Span<std::byte> x,
                            absl::Span<std::byte> y) const = 0;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_DATA_SOURCE_H_
