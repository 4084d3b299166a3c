#include "server/parameter_shard/checkpoint_io.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/shard_file.h"
#include "common/checkpoint/weights_file.h"
#include "common/safetensors/header.h"
#include "common/safetensors/writer.h"
#include "common/tensor.h"
#include "server/parameter_shard/checkpoint_slices.h"
#include "server/parameter_shard/weights_io.h"

namespace parley {
namespace {

// Of a checkpoint that was whole when the view named it and is not there: it is lost, and that is
// damage. Where the directory of checkpoints is not there either, it is this machine that does not
// see them, and an earlier one would be no better. What is no step's folder may have been a file.
absl::Status AsLost(FileSystem& files, const std::string& folder, const absl::Status& not_found) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const bool is_step = StepOfFolder(path.filename().string()).has_value();
  const absl::Status there = files.Info((is_step ? path.parent_path() : path).string()).status();
  if (absl::IsNotFound(there)) return not_found;
  if (!there.ok()) return there;
  return absl::DataLossError(absl::StrCat((path / "manifest.json").string(),
                                          ": the checkpoint is damaged: this file is missing"));
}

using BytesByName = std::map<std::string, absl::Span<const std::byte>>;

// The file, whole and durable, and its name too: what is reported must not be lost in a crash.
absl::StatusOr<SafetensorsWriter::Written> WriteTensors(
    FileSystem& files, const std::string& path, const std::vector<TensorSpec>& tensors,
    const BytesByName& bytes, const std::function<bool(uint64_t)>& on_bytes) {
  auto writer = SafetensorsWriter::Create(files, path, tensors);
  if (!writer.ok()) return writer.status();
  for (const TensorSpec& tensor : tensors) {
    const absl::Span<const std::byte> piece = bytes.at(tensor.name());
    if (absl::Status status = (*writer)->Append(piece); !status.ok()) return status;
    if (on_bytes && !on_bytes(piece.size())) {
      return absl::CancelledError(absl::StrCat(path, ": told to write no more"));
    }
  }
  absl::StatusOr<SafetensorsWriter::Written> written = (*writer)->Finish();
  if (!written.ok()) return written.status();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (absl::Status synced = files.SyncDirectory(folder); !synced.ok()) return synced;
  return written;
}

}  // namespace

absl::Status LoadCheckpoint(
    FileSystem& files, const std::string& folder, const Routing& routing,
    const std::function<absl::Status(uint32_t slice, const SliceStart& start)>& start,
    const std::function<void(uint64_t)>& on_check, const std::function<bool()>& stop) {
  const absl::StatusOr<bool> is_file = WeightsFile::IsMeantBy(files, folder);
  if (absl::IsUnavailable(is_file.status())) return is_file.status();
  if (is_file.value_or(false)) return LoadWeights(files, folder, routing, start, stop);
  auto reader = CheckpointReader::Open(files, folder);
  if (absl::IsNotFound(reader.status())) return AsLost(files, folder, reader.status());
  if (!reader.ok()) return reader.status();
  if ((*reader)->manifest().step() != routing.view().start_version()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint ", folder, " is of step ", (*reader)->manifest().step(),
                     ", but the view starts at ", routing.view().start_version()));
  }
  CheckpointSlices slices(**reader, routing, on_check, stop);
  for (size_t i = 0; i < routing.own_slices().size(); ++i) {
    const absl::StatusOr<const CheckpointSlices::Read*> read = slices.Next();
    if (!read.ok()) return read.status();
    absl::Status status = start((*read)->slice, (*read)->start);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFile> WriteCheckpointFile(FileSystem& files, const std::string& folder,
                                                   const Routing& routing,
                                                   const std::vector<SliceSnapshot>& slices,
                                                   const std::function<bool(uint64_t)>& on_bytes) {
  std::vector<TensorSpec> tensors;
  BytesByName bytes;
  const auto add = [&](const TensorSpec& piece, const std::byte* data, size_t size) {
    tensors.push_back(piece);
    bytes[piece.name()] = absl::MakeSpan(data, size);
  };
  for (const SliceSnapshot& snapshot : slices) {
    const Slice& slice = routing.slice(snapshot.slice);
    TensorSpec tensor = routing.tensor(snapshot.slice);
    const size_t size = snapshot.values->size();
    add(PieceOf(tensor, slice.begin(), slice.end()), snapshot.values->data(), size);
    const std::string name = tensor.name();
    for (const SliceSnapshot::State& state : snapshot.state) {
      tensor.set_name(StateName(name, state.name));
      add(PieceOf(tensor, slice.begin(), slice.end()), snapshot.state_buffer->data() + state.offset,
          size);
    }
  }
  SortForSafetensors(tensors);
  const std::string path =
      absl::StrCat(folder, "/", ShardFileName(routing.shard(), routing.view().job_epoch()));
  const auto written = WriteTensors(files, path, tensors, bytes, on_bytes);
  if (!written.ok()) {
    // Not left to the coordinator, which has to record first that the checkpoint is given up. Its
    // log may lie on the same disk, and have no room before this file is gone.
    files.Remove(path).IgnoreError();
    return written.status();
  }
  return DescribeShardFile(routing.shard(), routing.view().job_epoch(), *written);
}

std::map<std::string, uint64_t> OptimizerSteps(const Routing& routing,
                                               const std::vector<SliceSnapshot>& slices,
                                               bool of_each_slice) {
  std::map<std::string, uint64_t> steps;
  for (const SliceSnapshot& snapshot : slices) {
    const TensorSpec& tensor = routing.tensor(snapshot.slice);
    const uint64_t begin = routing.slice(snapshot.slice).begin();
    if (tensor.buffer() || (begin != 0 && !of_each_slice)) continue;
    steps[OptimizerStepsKey(tensor.name(), begin)] = snapshot.optimizer_steps;
  }
  return steps;
}

}  // namespace parley
