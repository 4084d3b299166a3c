#include "common/checkpoint/checkpoint_for_test.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/names.h"
#include "common/checkpoint/shard_file.h"
#include "common/safetensors/header.h"
#include "common/safetensors/writer.h"
#include "common/tensor.h"

namespace parley {
namespace {

TensorSpec Tensor(const std::string& name, DataType dtype, const std::vector<int64_t>& shape,
                  bool buffer) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(dtype);
  tensor.set_buffer(buffer);
  for (const int64_t size : shape) tensor.add_shape(size);
  return tensor;
}

// What one shard writes of one tensor.
struct Cut {
  TensorSpec piece;
  const TensorSpec* tensor = nullptr;
  uint64_t begin = 0;
};

}  // namespace

ModelForTest::ModelForTest(uint32_t seed) {
  manifest.set_job_name("small");
  manifest.set_step(123);
  manifest.set_seed(seed);
  manifest.mutable_data_position()->set_epoch(3);
  manifest.mutable_job()->mutable_optimizer()->mutable_adam()->set_rate(0.1);
  for (const TensorSpec& tensor :
       {Tensor("fc1.weight", F32, {50, 40}, false), Tensor("fc1.bias", F32, {50}, false),
        Tensor("scale", F32, {}, false), Tensor("empty", F32, {0, 7}, false),
        Tensor("norm.batches", I64, {}, true), Tensor("norm.mask", U8, {3}, true)}) {
    *manifest.add_tensors() = tensor;
    all.push_back(tensor);
    if (tensor.buffer()) continue;
    (*manifest.mutable_optimizer_steps())[tensor.name()] = 120;
    for (const char* state : {"exp_avg", "exp_avg_sq"}) {
      all.push_back(tensor);
      all.back().set_name(StateName(tensor.name(), state));
    }
  }
  std::mt19937 random(seed);
  for (const TensorSpec& tensor : all) {
    std::vector<std::byte>& bytes = values[tensor.name()];
    bytes.resize(ByteCount(tensor));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  }
}

absl::Status WriteCheckpointForTest(FileSystem& files, const std::string& folder,
                                    const ModelForTest& model, uint32_t shards, uint32_t seed,
                                    uint64_t block_bytes) {
  if (absl::Status status = files.CreateDirectories(folder); !status.ok()) return status;
  std::mt19937 random(seed);
  std::vector<std::vector<Cut>> cuts(shards);
  for (const TensorSpec& tensor : model.all) {
    std::set<uint64_t> ends = {ElementCount(tensor)};
    for (uint32_t i = 1; i < shards && ElementCount(tensor) > 1; ++i) {
      ends.insert(1 + random() % (ElementCount(tensor) - 1));
    }
    uint64_t begin = 0;
    for (const uint64_t end : ends) {
      cuts[random() % shards].push_back({PieceOf(tensor, begin, end), &tensor, begin});
      begin = end;
    }
  }
  Manifest manifest = model.manifest;
  for (uint32_t shard = 0; shard < shards; ++shard) {
    std::stable_sort(cuts[shard].begin(), cuts[shard].end(), [](const Cut& a, const Cut& b) {
      return ElementBytes(a.piece.dtype()) > ElementBytes(b.piece.dtype());
    });
    std::vector<TensorSpec> pieces;
    for (const Cut& cut : cuts[shard]) pieces.push_back(cut.piece);
    const std::string path = absl::StrCat(folder, "/", ShardFileName(shard));
    auto writer = SafetensorsWriter::Create(files, path, pieces, {}, block_bytes);
    if (!writer.ok()) return writer.status();
    for (const Cut& cut : cuts[shard]) {
      const absl::Span<const std::byte> whole = model.values.at(cut.tensor->name());
      const uint64_t at = cut.begin * ElementBytes(cut.piece.dtype());
      if (absl::Status status = (*writer)->Append(whole.subspan(at, ByteCount(cut.piece)));
          !status.ok()) {
        return status;
      }
    }
    const auto written = (*writer)->Finish();
    if (!written.ok()) return written.status();
    *manifest.add_files() = DescribeShardFile(shard, 1, *written);
  }
  return CommitCheckpoint(files, folder, std::move(manifest));
}

bool IsOfAName(const std::string& manifest, size_t at) {
  // ` "dtype": "F32",`, a line for each.
  const size_t begin = at == 0 ? 0 : manifest.rfind('\n', at - 1) + 1;
  const std::string line = manifest.substr(begin, manifest.find('\n', at) - begin);
  const size_t colon = line.find("\": ");
  if (colon == std::string::npos) return false;
  const size_t value = line.find('"', colon + 1);
  const bool is_enum = value != std::string::npos && absl::ascii_isupper(line[value + 1]);
  return at - begin < colon || (is_enum && at - begin > value);
}

}  // namespace parley
