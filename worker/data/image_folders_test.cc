#include "worker/data/image_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace parley {
namespace {

using ::testing::HasSubstr;

class ImageFoldersTest : public ::testing::Test {
 protected:
  ImageFoldersTest() {
    std::string name = "/tmp/image_folders_testXXXXXX";
    directory_ = mkdtemp(name.data());
    settings_.set_directory(directory_);
    settings_.set_side(8);
    settings_.set_least_area(0.08);
    settings_.set_flip(0.5);
    settings_.set_evaluation_share(0.875);
    settings_.set_threads(2);
    for (const float mean : {0.485F, 0.456F, 0.406F}) settings_.add_mean(mean);
    for (const float deviation : {0.229F, 0.224F, 0.225F}) settings_.add_deviation(deviation);
  }
  ~ImageFoldersTest() override { std::filesystem::remove_all(directory_); }

  // Of one colour, but for a red channel that grows from left to right.
  void Write(const std::string& name, uint8_t green) const {
    const std::string path = directory_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    constexpr uint32_t kSide = 40;
    std::vector<uint8_t> pixels;
    for (uint32_t i = 0; i < kSide * kSide; ++i) {
      pixels.push_back(static_cast<uint8_t>(i % kSide * 6));
      pixels.push_back(green);
      pixels.push_back(0);
    }
    png_image png = {};
    png.version = PNG_IMAGE_VERSION;
    png.width = kSide;
    png.height = kSide;
    png.format = PNG_FORMAT_RGB;
    ASSERT_NE(png_image_write_to_file(&png, path.c_str(), 0, pixels.data(), 0, nullptr), 0);
  }
  void WriteTwoClasses(const std::string& set) const {
    Write(set + "/dog/2.PNG", 120);
    Write(set + "/cat/1.png", 60);
    Write(set + "/cat/0.jpeg", 30);  // told apart by its bytes, not by its name
    std::ofstream(directory_ + "/" + set + "/cat/notes.txt") << "no image";
  }

  absl::StatusOr<Datasets> Open(uint64_t seed = 1) const {
    Data data;
    *data.mutable_image_folders() = settings_;
    return OpenDatasets(data, seed);
  }

  std::string directory_;
  ImageFolders settings_;
};

std::vector<float> X(const DataSource& source, const Draw& draw) {
  std::vector<float> values(draw.samples.size() * source.x().bytes() / sizeof(float));
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  EXPECT_EQ(source.FillX(draw, {bytes, values.size() * sizeof(float)}), absl::OkStatus());
  return values;
}

std::vector<int64_t> Y(const DataSource& source, const Draw& draw) {
  std::vector<int64_t> values(draw.samples.size());
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  EXPECT_EQ(source.FillY(draw, {bytes, values.size() * sizeof(int64_t)}), absl::OkStatus());
  return values;
}

TEST_F(ImageFoldersTest, ClassesAndFilesComeInTheOrderOfTheirNames) {
  WriteTwoClasses("train");
  WriteTwoClasses("val");
  const auto data = Open();
  ASSERT_TRUE(data.ok()) << data.status();
  for (const auto& set : {data->train, data->test}) {
    ASSERT_EQ(set->size(), 3);
    EXPECT_EQ(set->x().shape, std::vector<int64_t>({3, 8, 8}));
    EXPECT_EQ(Y(*set, {{2, 0, 1}}), std::vector<int64_t>({1, 0, 0}));
    const std::vector<float> x = X(*set, {{2, 0, 1}});
    // Green, with ImageNet's mean and deviation.
    for (const auto& [sample, green] :
         std::vector<std::pair<size_t, float>>{{0, 120}, {1, 30}, {2, 60}}) {
      for (size_t i = 0; i < 64; ++i) {
        EXPECT_NEAR(x[sample * 192 + 64 + i], (green / 255 - 0.456F) / 0.224F, 1e-4);
      }
    }
  }
}

TEST_F(ImageFoldersTest, TrainingShowsAnotherPartInEachEpochAndTheSameForTheSameSeed) {
  WriteTwoClasses("train");
  const auto data = Open();
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->test, nullptr);
  const DataSource& train = *data->train;
  EXPECT_EQ(X(train, {{0, 1}, 3}), X(train, {{0, 1}, 3}));
  EXPECT_NE(X(train, {{0}, 3}), X(train, {{0}, 4}));
  EXPECT_EQ(X(train, {{0}, 3}), X(*(*Open()).train, {{0}, 3}));
  EXPECT_NE(X(train, {{0}, 3}), X(*(*Open(/*seed=*/2)).train, {{0}, 3}));
  // Whatever is read beside it, and by how many threads.
  settings_.set_threads(5);
  const std::vector<float> alone = X(train, {{1}, 3});
  const std::vector<float> beside = X(*(*Open()).train, {{0, 1, 2}, 3});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), beside.begin() + 192));
}

TEST_F(ImageFoldersTest, EvaluationShowsTheMiddleAlways) {
  WriteTwoClasses("train");
  WriteTwoClasses("val");
  settings_.set_evaluation_share(0.5);
  const auto data = Open();
  ASSERT_TRUE(data.ok()) << data.status();
  const std::vector<float> x = X(*data->test, {{0}, 0});
  EXPECT_EQ(x, X(*data->test, {{0}, 1}));
  // Red grows by 6 with each pixel; pixels 10 to 29 are shown.
  EXPECT_NEAR(x[0] * 0.229F + 0.485F, 6 * 11.0F / 255, 0.02);
  EXPECT_NEAR(x[7] * 0.229F + 0.485F, 6 * 28.0F / 255, 0.02);
}

TEST_F(ImageFoldersTest, WhatIsMissingOrDoesNotFitIsSaid) {
  const absl::Status none = Open().status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr(directory_ + "/train"));
  EXPECT_THAT(std::string(none.message()), HasSubstr("train/CLASS"));

  std::filesystem::create_directories(directory_ + "/train");
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("training set is empty"));

  WriteTwoClasses("train");
  Write("val/dog/1.png", 1);
  EXPECT_THAT(std::string(Open().status().message()),
              HasSubstr("class 'cat' is in train but not in val"));
  Write("val/cat/1.png", 1);
  Write("val/eel/1.png", 1);
  EXPECT_THAT(std::string(Open().status().message()),
              HasSubstr("class 'eel' is in val but not in train"));
}

TEST_F(ImageFoldersTest, AFileThatIsNoImageIsNamed) {
  WriteTwoClasses("train");
  std::ofstream(directory_ + "/train/dog/3.jpg") << "no image";
  const auto data = Open();
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<std::byte> x(4 * data->train->x().bytes());
  const absl::Status status = data->train->FillX({{0, 1, 2, 3}}, absl::MakeSpan(x));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("train/dog/3.jpg: neither a JPEG nor a PNG"));
  EXPECT_EQ(data->train->FillX({{4}}, absl::MakeSpan(x).first(768)).code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace parley
