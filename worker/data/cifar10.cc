#include "worker/data/cifar10.h"

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/seed.h"
#include "worker/data/gzip_file.h"
#include "worker/data/image_view.h"

namespace parley {
namespace {

constexpr uint32_t kSide = 32;
constexpr size_t kChannel = size_t{kSide} * kSide;
constexpr size_t kImage = 3 * kChannel;
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

class Cifar10Source final : public DataSource {
 public:
  // view_seed: of what is shown of each image; none: all of it, always.
  Cifar10Source(std::vector<uint8_t> pixels, std::vector<uint8_t> labels, const Cifar10& settings,
                std::optional<uint64_t> view_seed)
      : pixels_(std::move(pixels)),
        labels_(std::move(labels)),
        padding_(settings.padding()),
        flip_(settings.flip()),
        view_seed_(padding_ == 0 && flip_ == 0 ? std::nullopt : view_seed) {
    for (int channel = 0; channel < 3; ++channel) {
      for (size_t byte = 0; byte < 256; ++byte) {
        values_[static_cast<size_t>(channel)][byte] =
            (static_cast<float>(byte) / 255.0F - settings.mean(channel)) /
            settings.deviation(channel);
      }
    }
  }

  uint64_t size() const override { return labels_.size(); }
  const SampleLayout& x() const override { return x_; }
  const SampleLayout& y() const override { return y_; }

  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override {
    if (absl::Status status = CheckFill(draw, size(), x_, x); !status.ok()) return status;
    auto* out = reinterpret_cast<float*>(x.data());
    for (const uint64_t sample : draw.samples) {
      const uint8_t* const pixels = pixels_.data() + sample * kImage;
      if (view_seed_.has_value()) {
        ShowView(pixels, DeriveSeed(*view_seed_, "view of an image", {draw.epoch, sample}), out);
      } else {
        for (size_t i = 0; i < kImage; ++i) out[i] = values_[i / kChannel][pixels[i]];
      }
      out += kImage;
    }
    return absl::OkStatus();
  }

  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override {
    return FillClasses(
        draw, size(), y_, [this](uint64_t sample) { return int64_t{labels_[sample]}; }, y);
  }

 private:
  void ShowView(const uint8_t* pixels, uint64_t seed, float* out) const {
    const uint32_t padded = kSide + 2 * padding_;
    const Crop crop = RandomSquare(padded, padded, kSide, seed);
    const bool mirrored = IsMirrored(flip_, seed);
    for (const std::array<float, 256>& values : values_) {
      for (uint32_t row = 0; row < kSide; ++row) {
        for (uint32_t column = 0; column < kSide; ++column) {
          // Without a sign: what lies before the image is beyond its end too.
          const uint32_t from_row = row + crop.top - padding_;
          const uint32_t from_column =
              (mirrored ? kSide - 1 - column : column) + crop.left - padding_;
          const bool black = from_row >= kSide || from_column >= kSide;
          *out++ = values[black ? 0 : pixels[from_row * kSide + from_column]];
        }
      }
      pixels += kChannel;
    }
  }

  const SampleLayout x_ = {F32, {3, kSide, kSide}};
  const SampleLayout y_ = {I64, {}};
  const std::vector<uint8_t> pixels_;
  const std::vector<uint8_t> labels_;
  const uint32_t padding_;
  const double flip_;
  const std::optional<uint64_t> view_seed_;
  std::array<std::array<float, 256>, 3> values_;  // of each channel: what each byte becomes
};

absl::StatusOr<std::shared_ptr<const DataSource>> OpenFiles(const Cifar10& settings,
                                                            const std::vector<std::string>& names,
                                                            std::optional<uint64_t> view_seed) {
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(settings.directory()) / name).string();
    if (const absl::Status status = Append(path, pixels, labels); !status.ok()) return status;
  }
  return std::make_shared<Cifar10Source>(std::move(pixels), std::move(labels), settings, view_seed);
}

}  // namespace

absl::StatusOr<Datasets> OpenCifar10(const Cifar10& settings, uint64_t seed) {
  auto train = OpenFiles(settings,
                         {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                          "data_batch_4.bin", "data_batch_5.bin"},
                         seed);
  if (!train.ok()) return train.status();
  auto test = OpenFiles(settings, {"test_batch.bin"}, /*view_seed=*/std::nullopt);
  if (!test.ok()) return test.status();
  return Datasets{*std::move(train), *std::move(test)};
}

}  // namespace parley
