#include "worker/data/idx.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/data/gzip_file.h"
#include "worker/data/in_memory_source.h"

namespace parley {
namespace {

uint32_t BigEndian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

absl::StatusOr<std::string> FindFile(const std::string& directory, const std::string& name) {
  const std::string plain = (std::filesystem::path(directory) / name).string();
  const std::string packed = plain + ".gz";
  std::error_code error;
  if (std::filesystem::exists(packed, error)) return packed;
  if (std::filesystem::exists(plain, error)) return plain;
  return absl::NotFoundError(absl::StrCat(
      "data missing: neither ", packed, " nor ", plain,
      " exists. Fashion-MNIST is installed by `apt-get install dataset-fashion-mnist`, into "
      "/usr/share/datasets/fashion-mnist; set data.idx.directory to the folder that has the four "
      "files"));
}

absl::StatusOr<std::shared_ptr<const DataSource>> OpenPart(const Idx& settings,
                                                           const std::string& prefix) {
  const auto images_path = FindFile(settings.directory(), prefix + "-images-idx3-ubyte");
  if (!images_path.ok()) return images_path.status();
  const auto labels_path = FindFile(settings.directory(), prefix + "-labels-idx1-ubyte");
  if (!labels_path.ok()) return labels_path.status();
  auto images = ReadIdx(*images_path, 3);
  if (!images.ok()) return images.status();
  auto labels = ReadIdx(*labels_path, 1);
  if (!labels.ok()) return labels.status();
  if (images->shape[0] != labels->shape[0]) {
    return absl::DataLossError(absl::StrCat(*images_path, " has ", images->shape[0],
                                            " images, but ", *labels_path, " has ",
                                            labels->shape[0], " labels"));
  }
  return std::make_shared<PixelSource>(std::vector<int64_t>{1, images->shape[1], images->shape[2]},
                                       std::move(images->bytes), std::move(labels->bytes),
                                       settings.mean(),
                                       settings.has_deviation() ? settings.deviation() : 1.0F);
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, size_t dimensions) {
  auto file = GzipFile::Open(path);
  if (!file.ok()) return file.status();
  const size_t header_bytes = 4 + 4 * dimensions;
  const auto header = file->Read(header_bytes);
  if (!header.ok()) return header.status();
  const uint32_t magic = 0x800 + static_cast<uint32_t>(dimensions);
  if (header->size() >= 4 && BigEndian(header->data()) != magic) {
    return absl::DataLossError(absl::StrFormat(
        "%s is no idx file of bytes in %d dimensions: its magic number is 0x%08x instead of 0x%08x",
        path, dimensions, BigEndian(header->data()), magic));
  }
  if (header->size() < header_bytes) {
    return absl::DataLossError(absl::StrCat(path, " is cut short: its header has ", header_bytes,
                                            " bytes, the file ", header->size()));
  }
  IdxArray array;
  uint64_t expected = 1;
  for (size_t i = 0; i < dimensions; ++i) {
    array.shape.push_back(BigEndian(header->data() + 4 + 4 * i));
    // Three sizes of 32 bits may overflow; a set of 2^40 bytes is none that is held in memory.
    expected = expected > (uint64_t{1} << 40) ? expected : expected * array.shape.back();
  }
  if (expected > (uint64_t{1} << 40)) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: its header speaks of ", expected, " bytes"));
  }
  auto bytes = file->Read(expected + 1);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() != expected) {
    return absl::DataLossError(absl::StrCat(
        path, ": its header says ", expected, " bytes of data, but there are ",
        bytes->size() > expected ? "more" : absl::StrCat(bytes->size()), "; get the file again"));
  }
  array.bytes = *std::move(bytes);
  return array;
}

absl::StatusOr<Datasets> OpenIdx(const Idx& settings) {
  Datasets datasets;
  auto train = OpenPart(settings, "train");
  if (!train.ok()) return train.status();
  auto test = OpenPart(settings, "t10k");
  if (!test.ok()) return test.status();
  datasets.train = *std::move(train);
  datasets.test = *std::move(test);
  return datasets;
}

}  // namespace parley
