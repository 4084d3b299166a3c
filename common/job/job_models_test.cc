// What the job file says of models and data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<JobConfig> Load(const std::string& model, const std::string& data) {
  const std::string path = testing::TempDir() + "/job.textproto";
  std::ofstream(path) << "name: \"models\"\n"
                      << "model { " << model << " }\n"
                      << "data { " << data << " batch: 4 }\n"
                      << "optimizer { sgd { rate: 1 } }\nepochs: 1\n";
  return LoadJob(path, {});
}

constexpr char kImages[] = "image_folders { directory: \"images\" }";

TEST(JobModels, DefaultsAreFilledIn) {
  const auto job = Load("resnet { depth: 34 }", kImages);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model().resnet().classes(), 10);
  const ImageFolders& images = job->data().image_folders();
  EXPECT_EQ(images.directory(), testing::TempDir() + "images");  // beside the job file
  EXPECT_EQ(images.side(), 224);
  EXPECT_EQ(images.least_area(), 0.08);
  EXPECT_EQ(images.flip(), 0.5);
  EXPECT_EQ(images.evaluation_share(), 0.875);
  EXPECT_EQ(images.threads(), 2);
  EXPECT_THAT(images.mean(), ElementsAre(0.485F, 0.456F, 0.406F));
  EXPECT_THAT(images.deviation(), ElementsAre(0.229F, 0.224F, 0.225F));
  const auto small = Load("resnet { depth: 18 }", "cifar10 { directory: \"cifar\" }");
  ASSERT_TRUE(small.ok()) << small.status();
  const Cifar10& cifar10 = small->data().cifar10();
  EXPECT_THAT(cifar10.mean(), ElementsAre(0, 0, 0));
  EXPECT_THAT(cifar10.deviation(), ElementsAre(1, 1, 1));
  EXPECT_TRUE(cifar10.has_padding() && cifar10.padding() == 0);
  EXPECT_TRUE(cifar10.has_flip() && cifar10.flip() == 0);
  const auto language = Load("transformer { width: 512 }", "text { train: \"book\" }");
  ASSERT_TRUE(language.ok()) << language.status();
  EXPECT_EQ(language->model().transformer().hidden(), 512);
  EXPECT_EQ(language->data().text().train(), testing::TempDir() + "book");
  EXPECT_EQ(language->data().text().tokens(), BYTES);
  EXPECT_EQ(Load("vgg19 {}", kImages)->model().vgg19().classes(), 10);
  EXPECT_EQ(Load("xresnet50 {}", kImages)->model().xresnet50().classes(), 10);
}

TEST(JobModels, WhatIsWrongIsSaidWithItsPlace) {
  const auto expect = [](const std::string& model, const std::string& data,
                         const std::string& message) {
    const absl::Status status = Load(model, data).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << model << " " << data;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect("resnet {}", kImages, "textproto:2: model.resnet.depth: must be 18, 34 or 50, not 0");
  expect("resnet { depth: 50 classes: 0 }", kImages, "2: model.resnet.classes: must be at least 1");
  expect("vgg19 { classes: 0 }", kImages, "2: model.vgg19.classes: must be at least 1");
  expect("xresnet50 { classes: 0 }", kImages, "2: model.xresnet50.classes: must be at least 1");
  expect("simple_cnn { classes: 0 }", kImages, "2: model.simple_cnn.classes: must be at least 1");
  expect("torchscript: \"\"", kImages, "2: model.torchscript: must name a file");
  const std::string text = "text { train: \"book\" }";
  expect("transformer { heads: 3 }", text, "2: model.transformer.heads: must divide width, 256");
  expect("transformer { width: 3 heads: 3 }", text, "2: model.transformer.width: must be even");
  expect("transformer { dropout: 1 }", text, "2: model.transformer.dropout: must be at least 0");
  expect("transformer {}", kImages, "2: model.transformer: predicts the tokens of a text");
  expect("transformer {}", "text {}", "3: data.text.train: must name a file");
  expect("transformer {}", "text { train: \"a\" test: \"b\" test_share: 0.5 }",
         "3: data.text.test_share: ");
  expect("transformer {}", "text { train: \"a\" vocabulary: 9 }", "3: data.text.vocabulary: ");
  expect("transformer {}", "text { train: \"a\" length: 0 }", "3: data.text.length: ");
  expect("vgg19 {}", "idx {}", "3: data.idx.directory: must name a folder");
  expect("vgg19 {}", "idx { directory: \"d\" deviation: 0 }", "3: data.idx.deviation: ");
  expect("vgg19 {}", "idx { directory: \"d\" mean: nan }", "3: data.idx.mean: ");
  expect("vgg19 {}", "cifar10 {}", "3: data.cifar10.directory: must name a folder");
  expect("vgg19 {}", "safetensors {}", "3: data.safetensors.train: must name a file");
  const auto images = [&](const std::string& field, const std::string& message) {
    expect("vgg19 {}", absl::StrCat("image_folders { directory: \"images\" ", field, " }"),
           absl::StrCat("textproto:3: data.image_folders.", message));
  };
  expect("vgg19 {}", "image_folders {}", "3: data.image_folders.directory: must name a folder");
  images("side: 0", "side: must be at least 1");
  images("side: 20000", "side: must be at least 1 and at most 16384");
  images("least_area: 0", "least_area: must be above 0 and at most 1");
  images("least_area: nan", "least_area: must be above 0");
  images("flip: 1.5", "flip: must be a number from 0 to 1");
  images("evaluation_share: 2", "evaluation_share: must be above 0 and at most 1");
  images("mean: 0.5", "mean: and deviation must each be given three times");
  images("mean: [0, inf, 0]", "mean: must be finite numbers");
  images("deviation: [1, 0, 1]", "deviation: ");
  images("threads: 0", "threads: must be at least 1");
  const auto cifar10 = [&](const std::string& field, const std::string& message) {
    expect("vgg19 {}", absl::StrCat("cifar10 { directory: \"cifar\" ", field, " }"),
           absl::StrCat("textproto:3: data.cifar10.", message));
  };
  cifar10("mean: [0.5, 0.5]", "mean: and deviation must each be given three times");
  cifar10("deviation: 1", "mean: and deviation must each be given three times");
  cifar10("mean: [0, nan, 0]", "mean: must be finite numbers");
  cifar10("deviation: [1, 1, 0]", "deviation: must be a number above 0");
  cifar10("flip: -0.1", "flip: must be a number from 0 to 1");
  cifar10("flip: nan", "flip: must be a number from 0 to 1");
  cifar10("padding: 33", "padding: must be at most 32, not 33");
}

TEST(JobModels, ClassNumbersAreNoTargets) {
  const absl::Status status =
      Load("vgg19 {} }\nloss: MEAN_SQUARED_ERROR\naccumulate: 1 checkpoint { ", kImages).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("labels of data.image_folders are class numbers"));
}

}  // namespace
}  // namespace parley
