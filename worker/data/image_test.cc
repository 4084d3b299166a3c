#include "worker/data/image.h"

#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "worker/data/image_view.h"

namespace parley {
namespace {

// A gradient, which JPEG keeps nearly as it is.
std::vector<uint8_t> Gradient(uint32_t width, uint32_t height) {
  std::vector<uint8_t> pixels;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      pixels.push_back(static_cast<uint8_t>(2 * x));
      pixels.push_back(static_cast<uint8_t>(2 * y));
      pixels.push_back(static_cast<uint8_t>(x + y));
    }
  }
  return pixels;
}

std::string Jpeg(uint32_t width, uint32_t height) {
  const std::vector<uint8_t> pixels = Gradient(width, height);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): the library's type
  void* const encoder = tjInitCompress();
  EXPECT_EQ(tjCompress2(encoder, pixels.data(), static_cast<int>(width), 0,
                        static_cast<int>(height), TJPF_RGB, &bytes, &size, TJSAMP_444, 95, 0),
            0);
  std::string jpeg(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(encoder);
  return jpeg;
}

std::string Png(uint32_t width, uint32_t height, uint32_t format, const uint8_t* pixels) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = width;
  png.height = height;
  png.format = format;
  png_alloc_size_t size = 0;
  EXPECT_NE(png_image_write_get_memory_size(png, size, 0, pixels, 0, nullptr),
            0);  // NOLINT: its macro
  std::string bytes(size, '\0');
  EXPECT_NE(png_image_write_to_memory(&png, bytes.data(), &size, 0, pixels, 0, nullptr), 0);
  bytes.resize(size);
  return bytes;
}

TEST(ImageTest, DecodesJpegAndPng) {
  const auto jpeg = DecodeImage(Jpeg(70, 50));
  ASSERT_TRUE(jpeg.ok()) << jpeg.status();
  EXPECT_EQ(jpeg->width, 70);
  EXPECT_EQ(jpeg->height, 50);
  const std::vector<uint8_t> expected = Gradient(70, 50);
  ASSERT_EQ(jpeg->pixels.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(jpeg->pixels[i], expected[i], 6) << i;
  const auto png = DecodeImage(Png(70, 50, PNG_FORMAT_RGB, expected.data()));
  ASSERT_TRUE(png.ok()) << png.status();
  EXPECT_EQ(png->pixels, expected);
}

TEST(ImageTest, GreyBecomesThreeChannelsAndTransparencyIsDropped) {
  const std::vector<uint8_t> grey = {0, 100, 200, 255};
  const auto of_grey = DecodeImage(Png(2, 2, PNG_FORMAT_GRAY, grey.data()));
  ASSERT_TRUE(of_grey.ok()) << of_grey.status();
  EXPECT_EQ(of_grey->pixels,
            std::vector<uint8_t>({0, 0, 0, 100, 100, 100, 200, 200, 200, 255, 255, 255}));
  const std::vector<uint8_t> clear = {10, 20, 30, 0, 40, 50, 60, 128};
  const auto of_clear = DecodeImage(Png(2, 1, PNG_FORMAT_RGBA, clear.data()));
  ASSERT_TRUE(of_clear.ok()) << of_clear.status();
  EXPECT_EQ(of_clear->pixels, std::vector<uint8_t>({10, 20, 30, 40, 50, 60}));
}

TEST(ImageTest, DamagedAndForeignFilesAreClearErrors) {
  const std::vector<uint8_t> pixels = Gradient(64, 64);
  for (const std::string& whole : {Jpeg(64, 64), Png(64, 64, PNG_FORMAT_RGB, pixels.data())}) {
    ASSERT_TRUE(DecodeImage(whole).ok());
    for (size_t size = 8; size + 16 < whole.size(); size += whole.size() / 50) {
      EXPECT_EQ(DecodeImage(whole.substr(0, size)).status().code(), absl::StatusCode::kDataLoss)
          << size << " of " << whole.size();
    }
  }
  for (const char* foreign : {"", "GIF89a", "\xff\xd8", "\x89PNG"}) {
    EXPECT_EQ(DecodeImage(foreign).status().code(), absl::StatusCode::kInvalidArgument);
  }
  // A header that asks for 4 GiB of pixels.
  std::string huge = Png(1, 1, PNG_FORMAT_RGB, pixels.data());
  huge.replace(16, 8, std::string("\x00\x00\x80\x00\x00\x00\x80\x00", 8));
  EXPECT_EQ(DecodeImage(huge).status().code(), absl::StatusCode::kDataLoss);
}

// Pillow takes them too.
TEST(ImageTest, AJpegWithSomeBytesTooManyIsDecoded) {
  const std::string whole = Jpeg(64, 64);
  std::string more = whole;
  more.insert(more.size() - 2, "extra");  // before the marker of the end
  const auto image = DecodeImage(more);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->pixels, DecodeImage(whole)->pixels);
  EXPECT_TRUE(DecodeImage(whole + std::string(100, '\0')).ok());
}

TEST(ImageViewTest, RandomCropsLieWithinAndHaveTheAreasAndRatiosAskedFor) {
  std::set<std::pair<uint32_t, uint32_t>> corners;
  double smallest = 1;
  double largest = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Crop crop = RandomCrop(400, 300, 0.08, seed);
    ASSERT_LE(crop.left + crop.width, 400);
    ASSERT_LE(crop.top + crop.height, 300);
    const double area = crop.width * crop.height / (400.0 * 300.0);
    const double ratio = static_cast<double>(crop.width) / crop.height;
    ASSERT_GT(area, 0.078);
    ASSERT_GT(ratio, 0.73);
    ASSERT_LT(ratio, 1.37);
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    corners.emplace(crop.left, crop.top);
  }
  EXPECT_LT(smallest, 0.1);
  EXPECT_GT(largest, 0.9);
  EXPECT_GT(corners.size(), 1500);
  const Crop again = RandomCrop(400, 300, 0.08, 3);
  EXPECT_EQ(again.left, RandomCrop(400, 300, 0.08, 3).left);
}

TEST(ImageViewTest, ImagesThatFitNoRatioShowTheirMiddle) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Crop flat = RandomCrop(1000, 3, 1, seed);
    EXPECT_EQ(flat.width, 4);
    EXPECT_EQ(flat.height, 3);
    EXPECT_EQ(flat.left, 498);
    const Crop dot = RandomCrop(1, 1, 0.08, seed);
    EXPECT_EQ(dot.width, 1);
    EXPECT_EQ(dot.height, 1);
  }
  const Crop middle = MiddleCrop(640, 480, 0.875);
  EXPECT_EQ(middle.width, 420);
  EXPECT_EQ(middle.left, 110);
  EXPECT_EQ(middle.top, 30);
}

TEST(ImageViewTest, MirroredViewsAreThoseOfTheirSeedsAsOftenAsAskedFor) {
  int mirrored = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    mirrored += IsMirrored(0.3, seed) ? 1 : 0;
    EXPECT_FALSE(IsMirrored(0, seed));
    EXPECT_TRUE(IsMirrored(1, seed));
  }
  EXPECT_NEAR(mirrored, 1200, 150);
}

TEST(ImageViewTest, ShowsThePartScaledMirroredAndNormalised) {
  Image image{4, 2, {}};
  for (const uint8_t value : {10, 20, 30, 40, 50, 60, 70, 80}) {
    for (int channel = 0; channel < 3; ++channel) {
      image.pixels.push_back(static_cast<uint8_t>(value + channel));
    }
  }
  const Normalization plain{{0, 0, 0}, {1 / 255.0F, 1 / 255.0F, 1 / 255.0F}};
  std::vector<float> out(3 * 2 * 2);
  ShowCrop(image, {1, 0, 2, 2}, 2, false, plain, absl::MakeSpan(out));
  const std::vector<float> red = {20, 30, 60, 70};
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t channel = i / 4;
    EXPECT_NEAR(out[i], red[i % 4] + static_cast<float>(channel), 1e-3) << i;
  }
  ShowCrop(image, {1, 0, 2, 2}, 2, true, plain, absl::MakeSpan(out));
  EXPECT_NEAR(out[0], 30, 1e-3);
  EXPECT_NEAR(out[1], 20, 1e-3);
  std::vector<float> one(3);
  ShowCrop(image, {0, 0, 4, 2}, 1, false, {{0.5, 0, 0}, {2, 1, 1}}, absl::MakeSpan(one));
  // All pixels count; those in the middle more.
  EXPECT_NEAR(one[0], (45 / 255.0 - 0.5) / 2, 1e-4);
}

}  // namespace
}  // namespace parley
