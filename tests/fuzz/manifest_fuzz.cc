// Any bytes as manifest.json: an error, or a manifest that says the same after it was written and
// read again. And as `latest`.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/checkpoint/file_blocks.h"
#include "common/checkpoint/latest.h"
#include "common/checkpoint/manifest.h"
#include "tests/fuzz/require.h"

namespace parley {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = ParseLatest(text); name.ok()) {
    Require(IsPlainName(*name) && *ParseLatest(FormatLatest(*name)) == *name);
  }
  const auto manifest = ParseManifest(text);
  if (!manifest.ok()) return 0;
  Require(CheckManifest(*manifest).ok());
  for (const CheckpointFile& file : manifest->files()) {
    const FileBlocks blocks(file);
    uint64_t end = 0;
    for (uint64_t block = 0; block < blocks.count(); ++block) {
      Require(blocks.Begin(block) == end && blocks.End(block) >= end);
      end = blocks.End(block);
      Require(end == blocks.Begin(block) || blocks.Of(end - 1) == block);
    }
    Require(end == file.bytes());
  }
  const auto json = FormatManifest(*manifest);
  Require(json.ok());
  const auto back = ParseManifest(*json);
  Require(back.ok());
  // Not the same text: protobuf writes the entries of a map in any order.
  const auto again = FormatManifest(*back);
  Require(again.ok() && ParseManifest(*again)->crc32() == back->crc32());
  return 0;
}

}  // namespace parley
