#include "worker/data/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

absl::StatusOr<GzipFile> GzipFile::Open(const std::string& path) {
  errno = 0;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    const std::string message = absl::StrCat(path, " cannot be opened: ", std::strerror(errno));
    if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(message);
    if (errno == EACCES) return absl::PermissionDeniedError(message);
    return absl::UnavailableError(message);
  }
  gzbuffer(file, 256 << 10);
  return GzipFile(path, file);
}

GzipFile::GzipFile(GzipFile&& other) noexcept
    : path_(other.path_), file_(std::exchange(other.file_, nullptr)) {}

GzipFile::~GzipFile() {
  if (file_ != nullptr) gzclose(static_cast<gzFile>(file_));
}

absl::StatusOr<std::vector<uint8_t>> GzipFile::Read(uint64_t limit) {
  constexpr uint64_t kChunk = 1 << 20;
  const auto file = static_cast<gzFile>(file_);
  std::vector<uint8_t> bytes;
  while (bytes.size() < limit) {
    const size_t have = bytes.size();
    const auto want = static_cast<unsigned>(std::min(kChunk, limit - have));
    bytes.resize(have + want);
    const int got = gzread(file, bytes.data() + have, want);
    int error = Z_OK;
    const char* text = gzerror(file, &error);
    bytes.resize(have + static_cast<size_t>(std::max(got, 0)));
    // A file cut inside the packed data gives what there is, and Z_BUF_ERROR.
    if (got < 0 || error == Z_BUF_ERROR) {
      return absl::DataLossError(absl::StrCat(path_, " is damaged or cut short after ",
                                              bytes.size(), " unpacked bytes of this read: ", text,
                                              "; get the file again"));
    }
    if (static_cast<unsigned>(got) < want) break;
  }
  return bytes;
}

}  // namespace parley
