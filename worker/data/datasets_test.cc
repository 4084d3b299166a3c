#include "worker/data/datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <tuple>

#include "common/file_system.h"
#include "common/safetensors/header.h"
#include "common/safetensors/writer.h"
#include "worker/data/cifar10.h"
#include "worker/data/idx.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

class DatasetsTest : public ::testing::Test {
 protected:
  DatasetsTest() {
    std::string name = "/tmp/datasets_testXXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~DatasetsTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  void WritePacked(const std::string& name, const std::string& bytes) const {
    const gzFile file = gzopen(Path(name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }
  std::string ReadBack(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
};

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// `count` images of 2 x 3 bytes: image i has bytes 10 * i + 0..5.
std::string IdxImages(uint32_t count) {
  std::string bytes = BigEndian(0x803) + BigEndian(count) + BigEndian(2) + BigEndian(3);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t p = 0; p < 6; ++p) bytes.push_back(static_cast<char>(10 * i + p));
  }
  return bytes;
}

std::string IdxLabels(uint32_t count) {
  std::string bytes = BigEndian(0x801) + BigEndian(count);
  for (uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i % 10));
  return bytes;
}

template <class T>
std::vector<T> Fill(const DataSource& source, std::vector<uint64_t> samples, bool x) {
  std::vector<std::byte> x_bytes(samples.size() * source.x().bytes());
  std::vector<std::byte> y_bytes(samples.size() * source.y().bytes());
  EXPECT_TRUE(source.Fill({samples}, absl::MakeSpan(x_bytes), absl::MakeSpan(y_bytes)).ok());
  const std::vector<std::byte>& bytes = x ? x_bytes : y_bytes;
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Data IdxData(const std::string& directory) {
  Data data;
  data.mutable_idx()->set_directory(directory);
  return data;
}

TEST_F(DatasetsTest, ReadsIdxFilesPackedOrNot) {
  WritePacked("train-images-idx3-ubyte.gz", IdxImages(4));
  WritePacked("train-labels-idx1-ubyte.gz", IdxLabels(4));
  Write("t10k-images-idx3-ubyte", IdxImages(2));
  Write("t10k-labels-idx1-ubyte", IdxLabels(2));
  Data settings = IdxData(directory_);
  settings.mutable_idx()->set_mean(0.5);
  settings.mutable_idx()->set_deviation(0.25);
  const auto data = OpenDatasets(settings);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 4);
  EXPECT_EQ(data->test_samples(), 2);
  EXPECT_EQ(data->train->x().shape, (std::vector<int64_t>{1, 2, 3}));
  const auto x = Fill<float>(*data->train, {3, 1}, true);
  ASSERT_EQ(x.size(), 12);
  EXPECT_EQ(x[0], (30.0F / 255.0F - 0.5F) / 0.25F);
  EXPECT_EQ(x[11], (15.0F / 255.0F - 0.5F) / 0.25F);
  EXPECT_EQ(Fill<int64_t>(*data->train, {3, 1}, false), (std::vector<int64_t>{3, 1}));
}

TEST_F(DatasetsTest, MissingDataSaysHowToGetIt) {
  const absl::Status status = OpenDatasets(IdxData(directory_)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("apt-get install dataset-fashion-mnist"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_));
  Data cifar;
  cifar.mutable_cifar10()->set_directory(directory_);
  EXPECT_THAT(std::string(OpenDatasets(cifar).status().message()), HasSubstr("cifar-10-binary"));
  Data safetensors;
  safetensors.mutable_safetensors()->set_train(Path("no.safetensors"));
  EXPECT_EQ(OpenDatasets(safetensors).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DatasetsTest, DamagedIdxFilesAreErrorsThatNameFileAndByteCounts) {
  const auto message = [&](const std::string& bytes) {
    Write("f", bytes);
    const absl::Status status = ReadIdx(Path("f"), 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path("f")));
    return std::string(status.message());
  };
  EXPECT_THAT(message(IdxLabels(4)), HasSubstr("0x00000801 instead of 0x00000803"));
  EXPECT_THAT(message(IdxImages(4).substr(0, 10)),
              HasSubstr("its header has 16 bytes, the file 10"));
  EXPECT_THAT(message(IdxImages(4).substr(0, 30)),
              HasSubstr("says 24 bytes of data, but there are 14"));
  EXPECT_THAT(message(IdxImages(4) + "x"), HasSubstr("there are more"));
  EXPECT_THAT(message(""), HasSubstr("the file 0"));
  const std::string lie = BigEndian(0x803) + std::string(12, '\xff');
  EXPECT_THAT(message(lie), HasSubstr("header speaks of"));
}

TEST_F(DatasetsTest, APackedFileCutShortIsAnError) {
  std::mt19937 random(1);
  std::string images = BigEndian(0x803) + BigEndian(100) + BigEndian(28) + BigEndian(28);
  for (int i = 0; i < 100 * 28 * 28; ++i) images.push_back(static_cast<char>(random()));
  WritePacked("whole.gz", images);
  ASSERT_TRUE(ReadIdx(Path("whole.gz"), 3).ok());
  const std::string packed = ReadBack("whole.gz");
  for (const size_t bytes : {size_t{11}, size_t{1000}, packed.size() / 2, packed.size() - 1}) {
    Write("cut.gz", packed.substr(0, bytes));
    const absl::Status status = ReadIdx(Path("cut.gz"), 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bytes << ": " << status;
  }
  std::string flipped = packed;
  flipped[packed.size() / 2] ^= 0x55;
  Write("flipped.gz", flipped);
  EXPECT_FALSE(ReadIdx(Path("flipped.gz"), 3).ok());
}

TEST_F(DatasetsTest, ImagesAndLabelsMustBeAsMany) {
  Write("train-images-idx3-ubyte", IdxImages(4));
  Write("train-labels-idx1-ubyte", IdxLabels(3));
  EXPECT_THAT(std::string(OpenDatasets(IdxData(directory_)).status().message()),
              HasSubstr("has 4 images"));
}

Data Cifar10Data(const std::string& directory) {
  Data data;
  Cifar10& settings = *data.mutable_cifar10();
  settings.set_directory(directory);
  for (int channel = 0; channel < 3; ++channel) {
    settings.add_mean(0);
    settings.add_deviation(1);
  }
  return data;
}

TEST_F(DatasetsTest, ReadsCifar10sBinaryFormat) {
  std::string record(3073, '\0');
  record[0] = 7;
  record[1] = '\xff';         // first red
  record[1 + 1024] = '\x33';  // first green
  for (int i = 1; i <= 5; ++i) Write("data_batch_" + std::to_string(i) + ".bin", record + record);
  Write("test_batch.bin", record);
  const Data settings = Cifar10Data(directory_);
  const auto data = OpenDatasets(settings);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 10);
  EXPECT_EQ(data->test->size(), 1);
  EXPECT_EQ(data->train->x().shape, (std::vector<int64_t>{3, 32, 32}));
  const auto x = Fill<float>(*data->train, {9}, true);
  EXPECT_EQ(x[0], 1.0F);
  EXPECT_EQ(x[1024], 0.2F);
  EXPECT_EQ(Fill<int64_t>(*data->train, {9}, false)[0], 7);

  Write("data_batch_3.bin", record + "x");
  const absl::Status cut = OpenDatasets(settings).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("data_batch_3.bin has 3074 bytes"));
  record[0] = 10;
  Write("data_batch_3.bin", record);
  EXPECT_THAT(std::string(OpenDatasets(settings).status().message()), HasSubstr("of class 10"));
}

// A record whose pixels say where they are: red grows by 7 from row to row, green from column to
// column, and blue is 255 everywhere, so that black is nowhere in the image.
std::string RecordOfPlaces() {
  std::string record(1, '\0');
  for (const int channel : {0, 1, 2}) {
    for (int i = 0; i < 32 * 32; ++i) {
      const int byte = channel == 0 ? 1 + 7 * (i / 32) : channel == 1 ? 1 + 7 * (i % 32) : 255;
      record.push_back(static_cast<char>(byte));
    }
  }
  return record;
}

// The bytes of that record's view, cut at (top, left) of the image with black around it.
std::vector<float> ViewOfPlaces(int padding, int top, int left, bool mirrored) {
  std::vector<float> view;
  for (const int channel : {0, 1, 2}) {
    for (int row = 0; row < 32; ++row) {
      for (int column = 0; column < 32; ++column) {
        const int r = row + top - padding;
        const int c = (mirrored ? 31 - column : column) + left - padding;
        const bool inside = r >= 0 && r < 32 && c >= 0 && c < 32;
        const int byte = channel == 0 ? 1 + 7 * r : channel == 1 ? 1 + 7 * c : 255;
        view.push_back(static_cast<float>(inside ? byte : 0));
      }
    }
  }
  return view;
}

class Cifar10ViewsTest : public DatasetsTest {
 protected:
  Cifar10ViewsTest() {
    const std::string record = RecordOfPlaces();
    for (int i = 1; i <= 5; ++i) Write("data_batch_" + std::to_string(i) + ".bin", record + record);
    Write("test_batch.bin", record);
  }
  Datasets Open(uint32_t padding, double flip, uint64_t seed = 1) {
    Data data = Cifar10Data(directory_);
    data.mutable_cifar10()->set_padding(padding);
    data.mutable_cifar10()->set_flip(flip);
    auto opened = OpenDatasets(data, seed);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  // As bytes.
  static std::vector<float> View(const DataSource& source, const Draw& draw) {
    std::vector<float> x(draw.samples.size() * 3 * 32 * 32);
    EXPECT_TRUE(source
                    .FillX(draw, absl::MakeSpan(reinterpret_cast<std::byte*>(x.data()),
                                                x.size() * sizeof(float)))
                    .ok());
    for (float& value : x) value = std::round(value * 255);
    return x;
  }
};

TEST_F(Cifar10ViewsTest, PixelsHaveTheMeanAndDeviationOfTheirChannel) {
  Data settings = Cifar10Data(directory_);
  settings.mutable_cifar10()->clear_mean();
  settings.mutable_cifar10()->clear_deviation();
  for (const float mean : {0.25F, 0.5F, 0.75F}) settings.mutable_cifar10()->add_mean(mean);
  for (const float deviation : {0.5F, 0.25F, 0.125F}) {
    settings.mutable_cifar10()->add_deviation(deviation);
  }
  settings.mutable_cifar10()->set_padding(32);
  const auto data = OpenDatasets(settings);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto x = Fill<float>(*data->test, {0}, true);
  EXPECT_EQ(x[32], (8 / 255.0F - 0.25F) / 0.5F);
  EXPECT_EQ(x[1024 + 31], (218 / 255.0F - 0.5F) / 0.25F);
  EXPECT_EQ(x[2048], 2);
  // What is black has the value of the byte 0, as where the image itself is padded.
  const auto shifted = Fill<float>(*data->train, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, true);
  for (size_t i = 0; i < shifted.size(); ++i) {
    const bool blue = i % 3072 >= 2048;
    EXPECT_TRUE(!blue || shifted[i] == 2 || shifted[i] == -6) << shifted[i];
  }
  EXPECT_NE(std::count(shifted.begin(), shifted.end(), -6), 0);
}

TEST_F(Cifar10ViewsTest, TrainingShiftsAndMirrorsAndShowsNothingElse) {
  const Datasets data = Open(/*padding=*/2, /*flip=*/0.5);
  std::map<std::vector<float>, std::tuple<int, int, bool>> views;
  for (int top = 0; top <= 4; ++top) {
    for (int left = 0; left <= 4; ++left) {
      for (const bool mirrored : {false, true}) {
        views[ViewOfPlaces(2, top, left, mirrored)] = {top, left, mirrored};
      }
    }
  }
  ASSERT_EQ(views.size(), 50);
  std::map<std::tuple<int, int, bool>, int> seen;
  int mirrored = 0;
  for (uint64_t epoch = 0; epoch < 600; ++epoch) {
    const auto found = views.find(View(*data.train, {{epoch % 10}, epoch}));
    ASSERT_NE(found, views.end()) << "epoch " << epoch << ": no view of the image";
    ++seen[found->second];
    mirrored += std::get<2>(found->second) ? 1 : 0;
  }
  EXPECT_EQ(seen.size(), 50) << "each place, mirrored or not";
  EXPECT_NEAR(mirrored, 300, 75);  // six deviations
}

TEST_F(Cifar10ViewsTest, TheSameSeedEpochAndSampleShowTheSame) {
  const Datasets data = Open(4, 0.5);
  const DataSource& train = *data.train;
  const std::vector<float> all = View(train, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 3});
  EXPECT_EQ(View(train, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 3}), all);
  EXPECT_EQ(View(*Open(4, 0.5).train, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 3}), all);
  EXPECT_NE(View(train, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 4}), all) << "another epoch";
  EXPECT_NE(View(*Open(4, 0.5, /*seed=*/2).train, {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 3}), all);
  // Whatever is read beside it.
  const std::vector<float> alone = View(train, {{7}, 3});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + 7 * 3072));
}

TEST_F(Cifar10ViewsTest, MirroringAloneShiftsNothing) {
  const std::vector<float> mirrored = View(*Open(0, 1).train, {{4}, 1});
  EXPECT_EQ(mirrored, ViewOfPlaces(0, 0, 0, true));
  EXPECT_EQ(mirrored[1024], 218) << "green of the last column comes first";
  EXPECT_EQ(View(*Open(0, 0).train, {{4}, 1}), ViewOfPlaces(0, 0, 0, false));
}

TEST_F(Cifar10ViewsTest, EvaluationShowsTheImageAsItIs) {
  const Datasets data = Open(8, 1);
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    EXPECT_EQ(View(*data.test, {{0}, epoch}), ViewOfPlaces(0, 0, 0, false));
  }
}

TEST_F(DatasetsTest, ReadsSafetensorsWithTheirOwnTypes) {
  const auto files = PosixFileSystem();
  const auto write = [&](const std::string& name, int64_t x_rows, int64_t y_rows) {
    TensorSpec x, y;
    x.set_name("x");
    x.set_dtype(F32);
    x.add_shape(x_rows);
    x.add_shape(2);
    y.set_name("y");
    y.set_dtype(I64);
    y.add_shape(y_rows);
    auto writer = SafetensorsWriter::Create(*files, Path(name), {y, x});
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<int64_t> classes(static_cast<size_t>(y_rows), 4);
    std::vector<float> values(static_cast<size_t>(2 * x_rows));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const auto append = [&](const auto& elements) {
      ASSERT_TRUE((*writer)
                      ->Append({reinterpret_cast<const std::byte*>(elements.data()),
                                elements.size() * sizeof(elements[0])})
                      .ok());
    };
    append(classes);
    append(values);
    ASSERT_TRUE((*writer)->Finish().ok());
  };
  write("train.safetensors", 3, 3);
  Data settings;
  settings.mutable_safetensors()->set_train(Path("train.safetensors"));
  const auto data = OpenDatasets(settings);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->test_samples(), 0);
  EXPECT_EQ(Fill<float>(*data->train, {2, 0}, true), (std::vector<float>{4, 5, 0, 1}));
  std::vector<std::byte> bytes(8);
  EXPECT_EQ(data->train->Fill({{3}}, absl::MakeSpan(bytes), absl::MakeSpan(bytes)).code(),
            absl::StatusCode::kOutOfRange);

  write("bad.safetensors", 3, 2);
  settings.mutable_safetensors()->set_train(Path("bad.safetensors"));
  EXPECT_THAT(std::string(OpenDatasets(settings).status().message()),
              HasSubstr("x has 3 samples, but y has 2"));
  Write("foreign.safetensors", "hello");
  settings.mutable_safetensors()->set_train(Path("foreign.safetensors"));
  EXPECT_THAT(std::string(OpenDatasets(settings).status().message()), HasSubstr("foreign"));
}

TEST_F(DatasetsTest, TheRealFashionMnistIsReadWhereItIsInstalled) {
  const std::string directory = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const auto data = OpenDatasets(IdxData(directory));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 60'000);
  EXPECT_EQ(data->test->size(), 10'000);
  EXPECT_EQ(data->train->x().shape, (std::vector<int64_t>{1, 28, 28}));
  EXPECT_EQ(Fill<int64_t>(*data->train, {0, 1}, false), (std::vector<int64_t>{9, 0}));
}

}  // namespace
}  // namespace parley
