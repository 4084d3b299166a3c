#ifndef PARLEY_COMMON_CHECKPOINT_READER_H_
#define PARLEY_COMMON_CHECKPOINT_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/file_sum.h"
#include "common/file_system.h"
#include "common/safetensors/reader.h"
#include "proto/checkpoint.pb.h"
#include "proto/types.pb.h"

namespace parley {

// A checkpoint open for reading, whatever cut and number of shards it was written with. A name is
// a tensor's ("fc1.weight") or its optimizer state's ("fc1.weight.exp_avg"). Thread-safe.
class CheckpointReader {
 public:
  // path: as ResolveCheckpoint takes it. Reads the manifest and the headers of all files, and
  // checks that these are what was written, that the files have their sizes and that every element
  // of every tensor is there exactly once; the tensors' sums are checked by VerifyRead, and by
  // VerifyCheckpoint for all files. NotFound where there is no checkpoint; DataLoss, with the
  // file's name, where it is damaged; InvalidArgument where it is of a later release's format.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(FileSystem& files,
                                                                const std::string& path);

  const Manifest& manifest() const { return manifest_; }
  const std::string& folder() const { return folder_; }  // of the step

  // Type and full shape; nullptr if there is none of this name. Lives as long as the reader.
  const TensorSpec* Find(const std::string& name) const;

  // Names of a tensor's state that are there, without the tensor's: "exp_avg", "exp_avg_sq".
  // Sorted.
  std::vector<std::string> StatesOf(const std::string& tensor) const;

  // Copies elements [begin, end) into `bytes`, which must have exactly their size. NotFound,
  // InvalidArgument (range or size), DataLoss and the codes of files.
  absl::Status Read(const std::string& name, uint64_t begin, uint64_t end,
                    absl::Span<std::byte> bytes) const;

  // A hint that Read will be called with this range; ignored where there is no such range.
  void WillRead(const std::string& name, uint64_t begin, uint64_t end) const;

  // Whether all that Read has copied so far is what was written. Reads the rest of each block of
  // which something was read, but no tensor twice; a file of an earlier release is one block.
  // DataLoss names the first damaged file, and its damaged blocks with their sums. on_bytes: is
  // told of what it reads, as it does, and says whether to go on (Cancelled where not); may be
  // null.
  absl::Status VerifyRead(const std::function<bool(uint64_t)>& on_bytes = nullptr) const;

 private:
  // One of the manifest's.
  struct DataFile {
    explicit DataFile(const CheckpointFile& written) : sum(written) {}

    std::unique_ptr<SafetensorsReader> reader;
    mutable FileSum sum;  // of what was read so far
  };
  struct Piece {  // elements [begin, end) of a tensor
    uint64_t begin = 0;
    uint64_t end = 0;
    const DataFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };
  struct Entry {
    TensorSpec tensor;
    std::vector<Piece> pieces;  // by begin, without gap
  };

  CheckpointReader(std::string folder, Manifest manifest);

  // Where pieces of this name go; nullptr if it is neither a tensor's nor a state's.
  Entry* EntryFor(const std::string& name, DataType dtype);
  absl::Status AddFile(FileSystem& files, const CheckpointFile& file);
  absl::Status AddPiece(const DataFile& file, const SafetensorsEntry& entry);
  // offset: in bytes, of the piece.
  absl::Status ReadPiece(const Piece& piece, uint64_t offset, absl::Span<std::byte> bytes) const;
  absl::Status CheckCoverage();

  // Constant after Open, but for the sums in files_, which are thread-safe.
  const std::string folder_;
  const Manifest manifest_;
  std::map<std::string, const TensorSpec*> tensors_;     // of the manifest
  std::map<std::string, std::set<std::string>> states_;  // tensor -> names of its state
  std::map<std::string, Entry> entries_;                 // tensors and states
  std::vector<std::unique_ptr<DataFile>> files_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_CHECKPOINT_READER_H_
