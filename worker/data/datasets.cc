#include "worker/data/datasets.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/file_system.h"
#include "common/tensor.h"
#include "worker/data/cifar10.h"
#include "worker/data/idx.h"
#include "worker/data/image_folders.h"
#include "worker/data/safetensors_source.h"
#include "worker/data/text.h"

namespace parley {
namespace {

bool Alike(const SampleLayout& a, const SampleLayout& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

std::string TextOf(const SampleLayout& layout) {
  const std::string_view name = DataTypeName(layout.dtype);
  return absl::StrCat(absl::string_view(name.data(), name.size()), " [",
                      absl::StrJoin(layout.shape, ", "), "]");
}

absl::StatusOr<Datasets> Open(const Data& settings, uint64_t seed) {
  switch (settings.kind_case()) {
    case Data::kIdx:
      return OpenIdx(settings.idx());
    case Data::kCifar10:
      return OpenCifar10(settings.cifar10(), seed);
    case Data::kSafetensors:
      return OpenSafetensors(settings.safetensors(), *PosixFileSystem());
    case Data::kImageFolders:
      return OpenImageFolders(settings.image_folders(), seed);
    case Data::kText:
      return OpenText(settings.text(), *PosixFileSystem());
    case Data::kOwn:
      return absl::InvalidArgumentError(
          "data: own {} is read by a program of your own (docs/api.md, Your own program); "
          "parley-worker reads "
          "idx, cifar10, image_folders, text and safetensors");
    default:
      return absl::InvalidArgumentError(
          "data: idx, cifar10, image_folders, text or safetensors must be set");
  }
}

}  // namespace

absl::StatusOr<Datasets> OpenDatasets(const Data& settings, uint64_t seed) {
  auto datasets = Open(settings, seed);
  if (!datasets.ok()) return datasets.status();
  const DataSource& train = *datasets->train;
  if (train.size() == 0) return absl::InvalidArgumentError("data: the training set is empty");
  if (datasets->test == nullptr) return datasets;
  const DataSource& test = *datasets->test;
  if (!Alike(train.x(), test.x()) || !Alike(train.y(), test.y())) {
    return absl::InvalidArgumentError(
        absl::StrCat("data: training samples are x ", TextOf(train.x()), ", y ", TextOf(train.y()),
                     ", but test samples are x ", TextOf(test.x()), ", y ", TextOf(test.y())));
  }
  return datasets;
}

}  // namespace parley
