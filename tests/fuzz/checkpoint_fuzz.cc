// Any bytes as the files of a checkpoint without sums of its own: an error, or a checkpoint that
// can be read, checked and exported. The input is the manifest and the shards' files, each up to a
// line of
// `====`. What the manifest says of sizes and sums is made right, so that the fuzzer comes past
// them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/export.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/verify.h"
#include "common/crc32.h"
#include "common/memory_file_system.h"
#include "common/safetensors/header.h"
#include "common/tensor.h"
#include "tests/fuzz/require.h"

namespace parley {
namespace {

std::string_view Next(std::string_view& rest) {
  constexpr std::string_view kEnd = "\n====\n";
  const size_t end = rest.find(kEnd);
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + kEnd.size());
  return part;
}

// With sums of blocks where the shard's number is odd.
CheckpointFile Describe(const CheckpointFile& said, std::string_view content) {
  constexpr uint64_t kBlockBytes = 64;
  CheckpointFile file;
  file.set_name(said.name());
  file.set_bytes(content.size());
  file.set_crc32(Crc32Text(Crc32(0, content)));
  const auto header_bytes = SafetensorsHeaderBytes(content, content.size());
  if (said.shard() % 2 == 0 || !header_bytes.ok()) return file;
  file.set_header_bytes(*header_bytes);
  file.set_block_bytes(kBlockBytes);
  *file.mutable_block_crc32s() = Crc32Text(Crc32(0, content.substr(0, *header_bytes)));
  for (uint64_t at = *header_bytes; at < content.size(); at += kBlockBytes) {
    *file.mutable_block_crc32s() += Crc32Text(Crc32(0, content.substr(at, kBlockBytes)));
  }
  return file;
}

void ReadAll(const CheckpointReader& reader) {
  for (const TensorSpec& tensor : reader.manifest().tensors()) {
    std::vector<std::string> names = {tensor.name()};
    for (const std::string& state : reader.StatesOf(tensor.name())) {
      names.push_back(absl::StrCat(tensor.name(), ".", state));
    }
    for (const std::string& name : names) {
      const TensorSpec* there = reader.Find(name);
      Require(there != nullptr);
      // All of it lies in the input.
      std::vector<std::byte> bytes(ByteCount(*there));
      Require(reader.Read(name, 0, ElementCount(*there), absl::MakeSpan(bytes)).ok());
    }
  }
  Require(reader.VerifyRead().ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  auto manifest = ParseManifest(Next(rest));
  if (!manifest.ok()) return 0;
  MemoryFileSystem files;
  Require(files.CreateDirectories("/c").ok());
  for (CheckpointFile& file : *manifest->mutable_files()) {
    const std::string_view content = Next(rest);
    Require(WriteFileAtomically(files, absl::StrCat("/c/", file.name()), content).ok());
    file = Describe(file, content);
  }
  const auto json = FormatManifest(*manifest);
  Require(json.ok());
  Require(WriteFileAtomically(files, "/c/manifest.json", *json).ok());
  const auto reader = CheckpointReader::Open(files, "/c");
  Require(reader.ok() == VerifyCheckpoint(files, "/c").ok());
  if (reader.ok()) ReadAll(**reader);
  // Where names of tensors clash with those of states it is an error.
  ExportCheckpoint(files, "/c", "/out").IgnoreError();
  return 0;
}

}  // namespace parley
