#include "worker/data/cifar10.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/gzip_file.h"
#include "worker/data/in_memory_source.h"

namespace parley {
namespace {

constexpr size_t kImage = 3 * 32 * 32;
constexpr size_t kRecord = 1 + kImage;
constexpr uint64_t kLimit = uint64_t{1} << 32;  // the real files have 30,730,000 bytes
constexpr int kClasses = 10;

absl::Status Append(const std::string& path, std::vector<uint8_t>& pixels,
                    std::vector<uint8_t>& labels) {
  auto file = GzipFile::Open(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(
        absl::StrCat("data missing: ", file.status().message(),
                     ". Unpack https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz and set "
                     "data.cifar10.directory to its folder cifar-10-batches-bin"));
  }
  if (!file.ok()) return file.status();
  const auto bytes = file->Read(kLimit);
  if (!bytes.ok()) return bytes.status();
  if (bytes->empty() || bytes->size() % kRecord != 0) {
    return absl::DataLossError(absl::StrCat(path, " has ", bytes->size(),
                                            " bytes: not a whole number of CIFAR-10's records of ",
                                            kRecord, " bytes; get the file again"));
  }
  for (size_t begin = 0; begin < bytes->size(); begin += kRecord) {
    const uint8_t* record = bytes->data() + begin;
    if (record[0] >= kClasses) {
      return absl::DataLossError(absl::StrCat(path, ": the record at byte ", begin, " is of class ",
                                              record[0], "; CIFAR-10 has classes 0 to 9"));
    }
    labels.push_back(record[0]);
    pixels.insert(pixels.end(), record + 1, record + kRecord);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const DataSource>> OpenFiles(const std::string& directory,
                                                            const std::vector<std::string>& names) {
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(directory) / name).string();
    if (const absl::Status status = Append(path, pixels, labels); !status.ok()) return status;
  }
  return std::make_shared<PixelSource>(std::vector<int64_t>{3, 32, 32}, std::move(pixels),
                                       std::move(labels), 0.0F, 1.0F);
}

}  // namespace

absl::StatusOr<Datasets> OpenCifar10(const Cifar10& settings) {
  auto train =
      OpenFiles(settings.directory(), {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                       "data_batch_4.bin", "data_batch_5.bin"});
  if (!train.ok()) return train.status();
  auto test = OpenFiles(settings.directory(), {"test_batch.bin"});
  if (!test.ok()) return test.status();
  return Datasets{*std::move(train), *std::move(test)};
}

}  // namespace parley
