#ifndef PARLEY_COMMON_CHECKPOINT_WEIGHTS_FILE_H_
#define PARLEY_COMMON_CHECKPOINT_WEIGHTS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/weights.h"
#include "common/file_system.h"
#include "common/safetensors/reader.h"
#include "proto/types.pb.h"

namespace parley {

// A safetensors file of a PyTorch model's state_dict, made by anyone, open for reading. It has no
// sums, so that its structure is all that is checked: header, sizes, and that every byte is one
// tensor's. The coordinator, `parley run` and `parley plan` look at what it says that it holds, the
// shards read their slices. Thread-safe; every error names the file.
class WeightsFile {
 public:
  // Whether a path to start from means such a file: a checkpoint is a folder. The codes of
  // FileSystem::Open where it is neither.
  static absl::StatusOr<bool> IsMeantBy(FileSystem& files, const std::string& path);

  // Reads the header. InvalidArgument where it is no safetensors file, with how to make one; the
  // codes of FileSystem::Open.
  static absl::StatusOr<std::unique_ptr<WeightsFile>> Open(FileSystem& files,
                                                           const std::string& path);

  const Weights& weights() const { return weights_; }

  // Copies elements [begin, end) of a tensor into `bytes`, which must have exactly their size;
  // `tensor` as the model has it: narrower elements are widened to its type. InvalidArgument where
  // the file has no such tensor, or one that is no start for it; DataLoss where the file has shrunk
  // since.
  absl::Status Read(const TensorSpec& tensor, uint64_t begin, uint64_t end,
                    absl::Span<std::byte> bytes) const;

 private:
  explicit WeightsFile(std::unique_ptr<SafetensorsReader> reader);

  // Constant after construction.
  const std::unique_ptr<SafetensorsReader> reader_;
  Weights weights_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_WEIGHTS_FILE_H_
