#ifndef PARLEY_COMMON_SAFETENSORS_READER_H_
#define PARLEY_COMMON_SAFETENSORS_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "common/safetensors/header.h"

namespace parley {

// A safetensors file open for reading. Thread-safe. Every error names the file.
class SafetensorsReader {
 public:
  // Reads and checks the header; the tensors' bytes stay where they are. InvalidArgument where it
  // is no safetensors file, or the codes of FileSystem::Open.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem& files,
                                                                 const std::string& path);
  // As above, of a file that is open; `path` is for messages.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(std::unique_ptr<ReadableFile> file,
                                                                 const std::string& path);

  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  const ReadableFile& file() const { return *file_; }

  // nullptr if there is no tensor of this name. Lives as long as the reader.
  const SafetensorsEntry* Find(const std::string& name) const;

  // Copies the tensor's bytes from `offset` (in bytes, from its start) on into all of `bytes`.
  // InvalidArgument beyond the tensor's end; DataLoss where the file has shrunk.
  absl::Status Read(const SafetensorsEntry& entry, uint64_t offset,
                    absl::Span<std::byte> bytes) const;

 private:
  SafetensorsReader(std::string path, std::unique_ptr<ReadableFile> file, SafetensorsHeader header);

  // Constant after construction.
  const std::string path_;
  const std::unique_ptr<ReadableFile> file_;
  const SafetensorsHeader header_;
  std::map<std::string, const SafetensorsEntry*> by_name_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_SAFETENSORS_READER_H_
