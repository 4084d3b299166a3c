// Any bytes as a safetensors file: an error, or tensors that fill the file, of which each byte can
// be read, and whose header says the same after it was written and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/memory_file_system.h"
#include "common/safetensors/header.h"
#include "common/safetensors/reader.h"
#include "common/tensor.h"
#include "tests/fuzz/require.h"

namespace parley {
namespace {

void CheckTensors(const SafetensorsReader& reader, uint64_t size) {
  uint64_t bytes = 0;
  std::vector<TensorSpec> tensors;
  for (const SafetensorsEntry& entry : reader.header().tensors) {
    Require(entry.begin <= entry.end && entry.end <= size);
    Require(ByteCount(entry.tensor) == entry.end - entry.begin);
    Require(reader.Find(entry.tensor.name()) == &entry);
    std::vector<std::byte> content(entry.end - entry.begin);
    Require(reader.Read(entry, 0, absl::MakeSpan(content)).ok());
    content.emplace_back();
    Require(!reader.Read(entry, 0, absl::MakeSpan(content)).ok());
    bytes += entry.end - entry.begin;
    tensors.push_back(entry.tensor);
  }
  // Only what others write may lie unaligned.
  SortForSafetensors(tensors);
  const auto header = FormatSafetensorsHeader(tensors, reader.header().metadata);
  Require(header.ok());
  const auto back = ParseSafetensorsHeader(*header, header->size() + bytes);
  Require(back.ok() && back->tensors.size() == tensors.size());
  Require(back->metadata == reader.header().metadata);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  MemoryFileSystem files;
  Require(WriteFileAtomically(files, "/input", bytes).ok());
  const auto reader = SafetensorsReader::Open(files, "/input");
  Require(reader.ok() == ParseSafetensorsHeader(bytes, size).ok());
  if (reader.ok()) CheckTensors(**reader, size);
  return 0;
}

}  // namespace parley
