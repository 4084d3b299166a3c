#include "common/checkpoint/export.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/reader.h"
#include "common/safetensors/header.h"
#include "common/safetensors/writer.h"
#include "common/tensor.h"

namespace parley {
namespace {

constexpr uint64_t kChunkBytes = 4 << 20;

// What PyTorch's optimizers keep beside the tensors of state.
constexpr char kStep[] = "step";

absl::Status CopyTensor(const CheckpointReader& checkpoint, const TensorSpec& tensor,
                        SafetensorsWriter& writer) {
  const uint64_t size = ElementBytes(tensor.dtype());
  const uint64_t elements = ElementCount(tensor);
  const uint64_t at_once = kChunkBytes / size;
  std::vector<std::byte> chunk(std::min(elements, at_once) * size);
  for (uint64_t begin = 0; begin < elements; begin += at_once) {
    const uint64_t end = std::min(elements, begin + at_once);
    const absl::Span<std::byte> part = absl::MakeSpan(chunk).first((end - begin) * size);
    if (absl::Status status = checkpoint.Read(tensor.name(), begin, end, part); !status.ok()) {
      return status;
    }
    if (absl::Status status = writer.Append(part); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Tensors of the checkpoint, and scalars by name, into one file.
absl::Status WriteFile(FileSystem& files, const CheckpointReader& checkpoint,
                       std::vector<TensorSpec> tensors, const std::map<std::string, float>& scalars,
                       const std::string& path) {
  SortForSafetensors(tensors);
  const std::string temporary = path + ".tmp";
  absl::StatusOr<std::unique_ptr<SafetensorsWriter>> writer =
      SafetensorsWriter::Create(files, temporary, tensors, {{"format", "pt"}});
  if (!writer.ok()) return writer.status();
  absl::Status status;
  for (const TensorSpec& tensor : tensors) {
    if (const auto scalar = scalars.find(tensor.name()); scalar != scalars.end()) {
      status = (*writer)->Append(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&scalar->second), sizeof(float)));
    } else {
      status = CopyTensor(checkpoint, tensor, **writer);
    }
    if (!status.ok()) break;
  }
  if (status.ok()) status = (*writer)->Finish().status();
  // Nobody could tell an export of a damaged checkpoint from a good one.
  if (status.ok()) status = checkpoint.VerifyRead();
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok()) files.Remove(temporary).IgnoreError();
  return status;
}

}  // namespace

absl::Status ExportCheckpoint(FileSystem& files, const std::string& path, const std::string& out) {
  const absl::StatusOr<std::unique_ptr<CheckpointReader>> checkpoint =
      CheckpointReader::Open(files, path);
  if (!checkpoint.ok()) return checkpoint.status();
  const Manifest& manifest = (*checkpoint)->manifest();
  std::vector<TensorSpec> model;
  std::vector<TensorSpec> optimizer;
  std::map<std::string, float> steps;
  const bool sgd = manifest.job().optimizer().has_sgd();
  for (const TensorSpec& tensor : manifest.tensors()) {
    model.push_back(tensor);
    const auto count = manifest.optimizer_steps().find(tensor.name());
    const bool counted = count != manifest.optimizer_steps().end();
    // Before its first step a tensor has no momentum_buffer in PyTorch, which starts it with the
    // gradient itself; zeros would be dampened. The other optimizers begin with what is here.
    if (sgd && counted && count->second == 0) continue;
    for (const std::string& state : (*checkpoint)->StatesOf(tensor.name())) {
      optimizer.push_back(*(*checkpoint)->Find(StateName(tensor.name(), state)));
    }
    if (!counted || sgd) continue;
    TensorSpec step;
    step.set_name(StateName(tensor.name(), kStep));
    step.set_dtype(F32);
    optimizer.push_back(step);
    steps[step.name()] = static_cast<float>(count->second);
  }
  if (absl::Status made = files.CreateDirectories(out); !made.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(out, ": ", made.message()));
  }
  absl::Status status =
      WriteFile(files, **checkpoint, std::move(model), {}, absl::StrCat(out, "/model.safetensors"));
  if (!status.ok()) return status;
  status = WriteFile(files, **checkpoint, std::move(optimizer), steps,
                     absl::StrCat(out, "/optimizer.safetensors"));
  if (!status.ok()) return status;
  return files.SyncDirectory(out);
}

}  // namespace parley
