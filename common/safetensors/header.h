#ifndef PARLEY_COMMON_SAFETENSORS_HEADER_H_
#define PARLEY_COMMON_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace parley {

// The header of a safetensors file: 8 bytes of length, little-endian, then so much JSON, then the
// tensors' bytes, row-major, little-endian, without gaps.
// https://huggingface.co/docs/safetensors/index#format

// More is no header of anybody's.
inline constexpr uint64_t kMostSafetensorsHeaderBytes = 32 << 20;

struct SafetensorsEntry {
  TensorSpec tensor;   // name, type, shape
  uint64_t begin = 0;  // of its bytes, from the start of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;        // as they lie in the file
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// How many bytes from the start of the file the header takes, told from the first 8.
// InvalidArgument where these cannot be a safetensors file of file_size bytes.
absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::string_view first_bytes, uint64_t file_size);

// Reads a header. `bytes` is the start of the file, at least SafetensorsHeaderBytes of it. Whatever
// it gets, an OK header is one whose tensors have distinct names, known types and sizes that fit
// their shapes, and fill the rest of the file without overlap or gap; all else is InvalidArgument,
// with the place in bytes where one can be told. Pure, so that a fuzzer can drive it.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view bytes,
                                                         uint64_t file_size);

// The start of a file with these tensors, in this order, up to the first tensor's bytes: padded so
// that they begin at a multiple of 8. InvalidArgument for a name twice or not UTF-8, an unknown
// type, an impossible shape, or an order in which a tensor would not lie at a multiple of its
// element's size (see SortForSafetensors).
absl::StatusOr<std::string> FormatSafetensorsHeader(
    const std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata);

// Larger element types first, else in the order given: then every tensor is aligned.
void SortForSafetensors(std::vector<TensorSpec>& tensors);

}  // namespace parley

#endif  // PARLEY_COMMON_SAFETENSORS_HEADER_H_
