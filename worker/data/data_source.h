#ifndef PARLEY_WORKER_DATA_DATA_SOURCE_H_
#define PARLEY_WORKER_DATA_DATA_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace parley {

// What one sample's x or y looks like in memory: row-major, no padding.
struct SampleLayout {
  DataType dtype = DATA_TYPE_UNSPECIFIED;
  std::vector<int64_t> shape;  // without the dimension of the samples
  int64_t classes = 0;  // where elements are numbers of classes, such as tokens: how many there are

  // Of one sample.
  size_t bytes() const;
};

// What is read: samples one after the other, as they look in that data epoch (an image shows
// another part of itself in each).
struct Draw {
  std::vector<uint64_t> samples;
  uint64_t epoch = 0;

  bool operator==(const Draw&) const = default;
};

// A set of samples (x, y) that can be read in any order. Immutable, hence thread-safe.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual uint64_t size() const = 0;  // samples
  virtual const SampleLayout& x() const = 0;
  virtual const SampleLayout& y() const = 0;

  // The spans have draw.samples.size() * x().bytes() or * y().bytes() bytes. The same bytes for the
  // same draw. OutOfRange where a sample is not in the set; what reading gives.
  virtual absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const = 0;
  // Does not read x.
  virtual absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const = 0;

  absl::Status Fill(const Draw& draw, absl::Span<std::byte> x, absl::Span<std::byte> y) const {
    absl::Status status = FillX(draw, x);
    return status.ok() ? FillY(draw, y) : status;
  }
};

// For who fills: InvalidArgument where the span is of another size than so many samples of the
// layout, OutOfRange where a sample is not in a set of this size.
absl::Status CheckFill(const Draw& draw, uint64_t size, const SampleLayout& layout,
                       absl::Span<std::byte> out);

// FillY where a sample's y is one class number, I64. class_of: of a sample below `size`. Codes:
// those of CheckFill.
absl::Status FillClasses(const Draw& draw, uint64_t size, const SampleLayout& layout,
                         absl::FunctionRef<int64_t(uint64_t sample)> class_of,
                         absl::Span<std::byte> out);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_DATA_SOURCE_H_
