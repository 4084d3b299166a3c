#include "server/parameter_shard/weights_io.h"

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/weights_file.h"
#include "common/tensor.h"

namespace parley {

absl::Status LoadWeights(
    FileSystem& files, const std::string& path, const Routing& routing,
    const std::function<absl::Status(uint32_t slice, const SliceStart& start)>& start,
    const std::function<bool()>& stop) {
  if (routing.view().start_version() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path,
                                                   " is a file of weights, but the view "
                                                   "starts at version ",
                                                   routing.view().start_version()));
  }
  const absl::StatusOr<std::unique_ptr<WeightsFile>> file = WeightsFile::Open(files, path);
  if (!file.ok()) return file.status();
  std::string bytes;
  for (const uint32_t id : routing.own_slices()) {
    if (stop && stop()) return absl::CancelledError("told to read no more");
    const Slice& slice = routing.slice(id);
    const TensorSpec& tensor = routing.tensor(id);
    bytes.resize((slice.end() - slice.begin()) * ElementBytes(tensor.dtype()));
    absl::Status status =
        (*file)->Read(tensor, slice.begin(), slice.end(),
                      absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
    if (!status.ok()) return status;
    SliceStart values;
    values.values = bytes;
    if (absl::Status started = start(id, values); !started.ok()) return started;
  }
  return absl::OkStatus();
}

}  // namespace parley
