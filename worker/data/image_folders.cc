#include "worker/data/image_folders.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/file_system.h"
#include "common/loop_threads.h"
#include "common/seed.h"
#include "worker/data/image.h"
#include "worker/data/image_view.h"

namespace parley {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostFileBytes = uint64_t{1} << 30;

bool IsImage(const fs::path& path) {
  const std::string ending = absl::AsciiStrToLower(path.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

// Names in the folder, in order, of those that are folders or of images.
absl::StatusOr<std::vector<std::string>> NamesIn(const fs::path& folder, bool folders) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unreadable;  // then its content will say so
    const bool is_folder = entry->is_directory(unreadable);
    if (is_folder == folders && (folders || IsImage(entry->path()))) {
      names.push_back(entry->path().filename().string());
    }
  }
  if (error) {
    const std::string text = absl::StrCat("data: ", folder.string(), ": ", error.message());
    return error == std::errc::no_such_file_or_directory ? absl::NotFoundError(text)
                                                         : absl::UnavailableError(text);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Of one set: files in the order of their names, and the numbers of their classes.
struct Listing {
  std::vector<std::string> classes;
  std::vector<std::string> files;
  std::vector<uint32_t> numbers;
};

absl::StatusOr<Listing> List(const fs::path& folder) {
  Listing listing;
  absl::StatusOr<std::vector<std::string>> classes = NamesIn(folder, /*folders=*/true);
  if (!classes.ok()) return classes.status();
  listing.classes = *std::move(classes);
  for (size_t number = 0; number < listing.classes.size(); ++number) {
    const fs::path of_class = folder / listing.classes[number];
    absl::StatusOr<std::vector<std::string>> files = NamesIn(of_class, /*folders=*/false);
    if (!files.ok()) return files.status();
    for (const std::string& file : *files) {
      listing.files.push_back((of_class / file).string());
      listing.numbers.push_back(static_cast<uint32_t>(number));
    }
  }
  return listing;
}

// What both sets have in common.
struct Views {
  ImageFolders settings;
  uint64_t seed;
  Normalization normalization;
  std::unique_ptr<FileSystem> files;
  std::unique_ptr<LoopThreads> threads;
};

class ImageFolderSource final : public DataSource {
 public:
  ImageFolderSource(Listing listing, bool training, std::shared_ptr<const Views> views)
      : listing_(std::move(listing)),
        training_(training),
        views_(std::move(views)),
        x_{F32, {3, views_->settings.side(), views_->settings.side()}},
        y_{I64, {}} {}

  uint64_t size() const override { return listing_.files.size(); }
  const SampleLayout& x() const override { return x_; }
  const SampleLayout& y() const override { return y_; }

  absl::Status FillX(const Draw& draw, absl::Span<std::byte> x) const override {
    if (absl::Status status = CheckFill(draw, size(), x_, x); !status.ok()) return status;
    const size_t bytes = x_.bytes();
    absl::Mutex mu;
    absl::Status first_error;
    views_->threads->Run(draw.samples.size(), [&](size_t i) {
      const absl::Status shown =
          Show(draw.samples[i], draw.epoch,
               {reinterpret_cast<float*>(x.data() + i * bytes), bytes / sizeof(float)});
      if (shown.ok()) return;
      absl::MutexLock lock(&mu);
      first_error.Update(shown);
    });
    return first_error;
  }

  absl::Status FillY(const Draw& draw, absl::Span<std::byte> y) const override {
    return FillClasses(
        draw, size(), y_, [this](uint64_t sample) { return int64_t{listing_.numbers[sample]}; }, y);
  }

 private:
  absl::Status Show(uint64_t sample, uint64_t epoch, absl::Span<float> out) const {
    const std::string& path = listing_.files[sample];
    const absl::StatusOr<std::string> bytes = ReadWholeFile(*views_->files, path, kMostFileBytes);
    if (!bytes.ok()) return bytes.status();
    const absl::StatusOr<Image> image = DecodeImage(*bytes);
    if (!image.ok()) {
      return absl::Status(image.status().code(),
                          absl::StrCat("data: ", path, ": ", image.status().message()));
    }
    const ImageFolders& settings = views_->settings;
    Crop crop;
    bool mirrored = false;
    if (training_) {
      const uint64_t seed = DeriveSeed(views_->seed, "view of an image", {epoch, sample});
      crop = RandomCrop(image->width, image->height, settings.least_area(), seed);
      mirrored = IsMirrored(settings.flip(), seed);
    } else {
      crop = MiddleCrop(image->width, image->height, settings.evaluation_share());
    }
    ShowCrop(*image, crop, settings.side(), mirrored, views_->normalization, out);
    return absl::OkStatus();
  }

  const Listing listing_;
  const bool training_;
  const std::shared_ptr<const Views> views_;
  const SampleLayout x_;
  const SampleLayout y_;
};

Normalization NormalizationOf(const ImageFolders& settings) {
  Normalization normalization;
  for (int channel = 0; channel < 3; ++channel) {
    normalization.mean[static_cast<size_t>(channel)] = settings.mean(channel);
    normalization.deviation[static_cast<size_t>(channel)] = settings.deviation(channel);
  }
  return normalization;
}

}  // namespace

absl::StatusOr<Datasets> OpenImageFolders(const ImageFolders& settings, uint64_t seed) {
  const fs::path directory = settings.directory();
  absl::StatusOr<Listing> train = List(directory / "train");
  if (absl::IsNotFound(train.status())) {
    return absl::NotFoundError(absl::StrCat(train.status().message(),
                                            "; data.image_folders.directory needs the folders "
                                            "train/CLASS with images, and val/CLASS to evaluate"));
  }
  if (!train.ok()) return train.status();
  auto views = std::make_shared<Views>();
  views->settings = settings;
  views->seed = seed;
  views->normalization = NormalizationOf(settings);
  views->files = PosixFileSystem();
  views->threads = std::make_unique<LoopThreads>(settings.threads() - 1);
  Datasets datasets;
  absl::StatusOr<Listing> val = List(directory / "val");
  if (!val.ok() && !absl::IsNotFound(val.status())) return val.status();
  if (val.ok()) {
    if (val->classes != train->classes) {
      const auto different = std::mismatch(val->classes.begin(), val->classes.end(),
                                           train->classes.begin(), train->classes.end());
      const bool in_val =
          different.first != val->classes.end() &&
          (different.second == train->classes.end() || *different.first < *different.second);
      return absl::InvalidArgumentError(absl::StrCat(
          "data: ", directory.string(), ": class '", in_val ? *different.first : *different.second,
          "' is in ", in_val ? "val but not in train" : "train but not in val"));
    }
    datasets.test = std::make_shared<ImageFolderSource>(*std::move(val), false, views);
  }
  datasets.train = std::make_shared<ImageFolderSource>(*std::move(train), true, std::move(views));
  return datasets;
}

}  // namespace parley
