#include "common/job/model_check.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr uint32_t kMostPrefetched = 1024;
constexpr uint32_t kMostPadding = 32;  // then a view may be black

void SleepingIsRight(const Sleeping& sleeping, FieldCheck& check) {
  check.Between(1, sleeping.layers(), 1 << 10, "model.sleeping.layers");
  for (const double seconds : {sleeping.forward_seconds(), sleeping.input_gradient_seconds(),
                               sleeping.weight_gradient_seconds()}) {
    check.Require(seconds >= 0 && seconds <= 60, "model.sleeping",
                  absl::StrCat("sleeps 0 to 60 seconds, not ", seconds));
  }
}

void TransformerIsRight(const Transformer& transformer, FieldCheck& check) {
  check.Between(1, transformer.width(), 1 << 16, "model.transformer.width");
  check.Between(1, transformer.heads(), 1 << 16, "model.transformer.heads");
  check.Require(
      transformer.heads() == 0 || transformer.width() % transformer.heads() == 0,
      "model.transformer.heads",
      absl::StrCat("must divide width, ", transformer.width(), ", not ", transformer.heads()));
  check.Require(transformer.width() % 2 == 0, "model.transformer.width",
                "must be even: half of it are sines, half cosines");
  check.Between(1, transformer.hidden(), 1 << 18, "model.transformer.hidden");
  check.Between(1, transformer.layers(), 1 << 10, "model.transformer.layers");
  check.BelowOne(transformer.dropout(), "model.transformer.dropout");
  check.Require(check.job().data().has_text(), "model.transformer",
                "predicts the tokens of a text: data must be text");
}

void TextIsRight(const Text& text, FieldCheck& check) {
  check.Require(!text.train().empty(), "data.text.train", "must name a file");
  check.BelowOne(text.test_share(), "data.text.test_share");
  check.Require(
      text.test().empty() || text.test_share() == 0, "data.text.test_share",
      "is of the file `train`, but the file `test` is given too: one of the two must be left "
      "out");
  check.Require(text.tokens() == BYTES || text.tokens() == WORDS, "data.text.tokens",
                "must be BYTES or WORDS");
  check.Require(text.vocabulary() == 0 || text.tokens() == WORDS, "data.text.vocabulary",
                "is of WORDS: with BYTES it must be 0 or left out");
  check.Require(text.vocabulary() != 1 && text.vocabulary() <= 1 << 24, "data.text.vocabulary",
                "must be 0 or from 2 to 16777216");
  check.Between(1, text.length(), 1 << 20, "data.text.length");
  check.Between(1, text.columns(), kMostSamples, "data.text.columns");
}

bool HasClasses(const Data& data) {
  return data.has_idx() || data.has_cifar10() || data.has_image_folders() || data.has_text();
}

// Of what has three channels.
template <class Images>
void PixelsAreRight(const Images& images, const std::string& section, FieldCheck& check) {
  check.Require(images.flip() >= 0 && images.flip() <= 1, section + ".flip",
                "must be a number from 0 to 1");
  check.Require(images.mean_size() == 3 && images.deviation_size() == 3, section + ".mean",
                "and deviation must each be given three times: for red, green and blue");
  for (const float mean : images.mean()) {
    check.Require(std::isfinite(mean), section + ".mean", "must be finite numbers");
  }
  for (const float deviation : images.deviation()) {
    check.Positive(deviation, section + ".deviation");
  }
}

void Cifar10IsRight(const Cifar10& cifar10, FieldCheck& check) {
  check.Require(!cifar10.directory().empty(), "data.cifar10.directory", "must name a folder");
  PixelsAreRight(cifar10, "data.cifar10", check);
  check.Require(cifar10.padding() <= kMostPadding, "data.cifar10.padding",
                absl::StrCat("must be at most ", kMostPadding, ", not ", cifar10.padding()));
}

void ImageFoldersAreRight(const ImageFolders& images, FieldCheck& check) {
  check.Require(!images.directory().empty(), "data.image_folders.directory", "must name a folder");
  check.Between(1, images.side(), 1 << 14, "data.image_folders.side");
  check.Share(images.least_area(), "data.image_folders.least_area");
  check.Share(images.evaluation_share(), "data.image_folders.evaluation_share");
  PixelsAreRight(images, "data.image_folders", check);
  check.Between(1, images.threads(), 1024, "data.image_folders.threads");
}

}  // namespace

void CheckModel(FieldCheck& check) {
  const JobConfig& job = check.job();
  check.Require(job.model().kind_case() != Model::KIND_NOT_SET, "model",
                "is missing; give one, such as model { simple_cnn {} } or "
                "model { torchscript: \"FILE\" }");
  if (job.model().has_simple_cnn()) {
    check.Between(1, job.model().simple_cnn().classes(), 1 << 20, "model.simple_cnn.classes");
  }
  if (job.model().has_resnet()) {
    const ResNet& resnet = job.model().resnet();
    check.Require(resnet.depth() == 18 || resnet.depth() == 34 || resnet.depth() == 50,
                  "model.resnet.depth", absl::StrCat("must be 18, 34 or 50, not ", resnet.depth()));
    check.Between(1, resnet.classes(), 1 << 20, "model.resnet.classes");
  }
  if (job.model().has_vgg19()) {
    check.Between(1, job.model().vgg19().classes(), 1 << 20, "model.vgg19.classes");
  }
  if (job.model().has_xresnet50()) {
    check.Between(1, job.model().xresnet50().classes(), 1 << 20, "model.xresnet50.classes");
  }
  if (job.model().has_transformer()) TransformerIsRight(job.model().transformer(), check);
  if (job.model().has_sleeping()) SleepingIsRight(job.model().sleeping(), check);
  if (job.model().has_torchscript()) {
    check.Require(!job.model().torchscript().empty(), "model.torchscript", "must name a file");
  }
}

void CheckData(FieldCheck& check) {
  const JobConfig& job = check.job();
  const Data& data = job.data();
  check.Require(
      data.kind_case() != Data::KIND_NOT_SET, "data",
      "is missing; give one of idx, cifar10, image_folders, text and safetensors, such as "
      "data { idx { directory: \"/usr/share/datasets/fashion-mnist\" } batch: 100 }");
  if (data.has_idx()) {
    check.Require(!data.idx().directory().empty(), "data.idx.directory", "must name a folder");
    check.Require(std::isfinite(data.idx().mean()), "data.idx.mean", "must be a finite number");
    check.Positive(data.idx().deviation(), "data.idx.deviation");
  }
  if (data.has_cifar10()) Cifar10IsRight(data.cifar10(), check);
  if (data.has_image_folders()) ImageFoldersAreRight(data.image_folders(), check);
  if (data.has_text()) TextIsRight(data.text(), check);
  if (data.has_safetensors()) {
    check.Require(!data.safetensors().train().empty(), "data.safetensors.train",
                  "must name a file");
  }
  check.Between(1, data.batch(), kMostSamples, "data.batch");
  check.Between(1, data.evaluation_batch(), kMostSamples, "data.evaluation_batch");
  check.Between(0, data.prefetch(), kMostPrefetched, "data.prefetch");
  check.Require(job.loss() == CROSS_ENTROPY || job.loss() == MEAN_SQUARED_ERROR, "loss",
                "must be CROSS_ENTROPY or MEAN_SQUARED_ERROR");
  check.Require(job.loss() != MEAN_SQUARED_ERROR || !HasClasses(data), "loss",
                absl::StrCat("MEAN_SQUARED_ERROR needs targets like the network's outputs, but the "
                             "labels of data.",
                             data.has_idx()       ? "idx"
                             : data.has_cifar10() ? "cifar10"
                             : data.has_text()    ? "text"
                                                  : "image_folders",
                             " are class numbers: must be CROSS_ENTROPY or left out"));
}

}  // namespace parley
