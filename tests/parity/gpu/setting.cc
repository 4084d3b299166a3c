#include "tests/parity/gpu/setting.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "worker/data/in_memory_source.h"

namespace parley {

Setting SettingOf(const std::string& model) {
  if (model == "resnet50") return {"resnet { depth: 50 classes: 1000 }", {3, 224, 224}, 1000, 64};
  if (model == "transformer") {
    return {"transformer { width: 1024 heads: 8 hidden: 1024 layers: 3 }", {}, 28782, 32};
  }
  return {"simple_cnn {}", {1, 28, 28}, 10, 100};
}

Datasets RandomData(const Setting& setting) {
  std::mt19937 random(1);
  if (setting.image.empty()) {
    constexpr uint64_t kTexts = 2000;
    constexpr int64_t kLength = 35;
    const SampleLayout layout = {I64, {kLength}, setting.classes};
    const auto tokens = [&] {
      std::vector<int64_t> numbers(kTexts * kLength);
      for (int64_t& number : numbers) {
        number = static_cast<int64_t>(random() % static_cast<uint32_t>(setting.classes));
      }
      std::vector<std::byte> bytes(numbers.size() * sizeof(int64_t));
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
      return bytes;
    };
    return {std::make_shared<RowSource>(kTexts, layout, layout, tokens(), tokens()), nullptr};
  }
  constexpr size_t kImages = 1000;
  size_t pixels_of_one = 1;
  for (const int64_t extent : setting.image) pixels_of_one *= static_cast<size_t>(extent);
  std::vector<uint8_t> pixels(kImages * pixels_of_one);
  std::vector<uint8_t> labels(kImages);
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random());
  for (uint8_t& label : labels) label = static_cast<uint8_t>(random() % 10);
  return {std::make_shared<PixelSource>(setting.image, std::move(pixels), std::move(labels), 0.5F,
                                        0.25F),
          nullptr};
}

}  // namespace parley
