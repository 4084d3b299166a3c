// Prints a part of an image as float32: channels, rows, columns; 0 to 255. For images_test.
// image_probe FILE LEFT TOP WIDTH HEIGHT SIDE MIRRORED
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "worker/data/image.h"
#include "worker/data/image_view.h"

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "usage: image_probe FILE LEFT TOP WIDTH HEIGHT SIDE MIRRORED\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto image = parley::DecodeImage(bytes);
  if (!image.ok()) {
    std::fprintf(stderr, "%s\n", std::string(image.status().message()).c_str());
    return 1;
  }
  const auto number = [&](int i) {
    return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  const uint32_t side = number(6);
  std::vector<float> out(size_t{3} * side * side);
  constexpr float kOne = 1 / 255.0F;
  parley::ShowCrop(*image, {number(2), number(3), number(4), number(5)}, side, number(7) != 0,
                   {{0, 0, 0}, {kOne, kOne, kOne}}, absl::MakeSpan(out));
  return std::fwrite(out.data(), sizeof(float), out.size(), stdout) == out.size() ? 0 : 1;
}
