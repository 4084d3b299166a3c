#include "worker/data/image.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

constexpr absl::string_view kJpegBegins = "\xff\xd8\xff";
constexpr absl::string_view kPngBegins = "\x89PNG\r\n\x1a\n";
// What a damaged header asks for must not take the machine's memory.
constexpr uint64_t kMostPixels = uint64_t{1} << 28;

absl::Status CheckSize(uint64_t width, uint64_t height) {
  if (width > 0 && height > 0 && width * height <= kMostPixels) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("an image of ", width, " x ", height, " pixels"));
}

// A JPEG ends with this marker, and perhaps some padding. In what is compressed it cannot be; in a
// preview at the beginning it can.
bool IsCutOff(absl::string_view bytes) {
  constexpr size_t kPadding = 4096;
  const absl::string_view end = bytes.substr(bytes.size() - std::min(bytes.size(), kPadding));
  return !absl::StrContains(end, "\xff\xd9");
}

// Adobe's inverted inks, which is how JPEGs of four channels are written.
void CmykToRgb(const std::vector<uint8_t>& cmyk, std::vector<uint8_t>& rgb) {
  for (size_t i = 0; i < rgb.size() / 3; ++i) {
    const unsigned black = cmyk[4 * i + 3];
    for (size_t channel = 0; channel < 3; ++channel) {
      rgb[3 * i + channel] = static_cast<uint8_t>((cmyk[4 * i + channel] * black + 127) / 255);
    }
  }
}

absl::StatusOr<Image> DecodeJpeg(absl::string_view bytes) {
  struct Destroy {
    void operator()(void* handle) const { tjDestroy(handle); }
  };
  const std::unique_ptr<void, Destroy> decoder(tjInitDecompress());
  if (decoder == nullptr) return absl::ResourceExhaustedError("no memory for a JPEG decoder");
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat("a damaged JPEG: ", tjGetErrorStr2(decoder.get())));
  };
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colours = 0;
  if (tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height, &subsampling,
                          &colours) != 0) {
    return damaged();
  }
  Image image;
  image.width = static_cast<uint32_t>(width);
  image.height = static_cast<uint32_t>(height);
  if (absl::Status size = CheckSize(image.width, image.height); !size.ok()) return size;
  const size_t pixels = size_t{image.width} * image.height;
  image.pixels.resize(pixels * 3);
  const bool inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
  std::vector<uint8_t> cmyk(inks ? pixels * 4 : 0);
  const bool decoded =
      tjDecompress2(decoder.get(), data, bytes.size(), inks ? cmyk.data() : image.pixels.data(),
                    width, 0, height, inks ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT) == 0;
  // ImageNet has files with some bytes too many, of which the decoder warns. Of one that is cut off
  // it warns too, but half an image is no sample.
  if (!decoded && (tjGetErrorCode(decoder.get()) != TJERR_WARNING || IsCutOff(bytes))) {
    return damaged();
  }
  if (inks) CmykToRgb(cmyk, image.pixels);
  return image;
}

absl::StatusOr<Image> DecodePng(absl::string_view bytes) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  struct Free {
    png_image& png;
    ~Free() { png_image_free(&png); }
  } const free{png};
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat("a damaged PNG: ", png.message));
  };
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return damaged();
  if (absl::Status size = CheckSize(png.width, png.height); !size.ok()) return size;
  // With transparency where there is one, for otherwise it would be mixed with a background.
  const bool transparent = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.format = transparent ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  Image image;
  image.width = png.width;
  image.height = png.height;
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  if (png_image_finish_read(&png, nullptr, image.pixels.data(), 0, nullptr) == 0) return damaged();
  if (PNG_IMAGE_FAILED(png)) return damaged();
  if (!transparent) return image;
  for (size_t i = 0; i < image.pixels.size() / 4; ++i) {
    for (size_t channel = 0; channel < 3; ++channel) {
      image.pixels[3 * i + channel] = image.pixels[4 * i + channel];
    }
  }
  image.pixels.resize(image.pixels.size() / 4 * 3);
  return image;
}

}  // namespace

absl::StatusOr<Image> DecodeImage(absl::string_view bytes) {
  if (absl::StartsWith(bytes, kJpegBegins)) return DecodeJpeg(bytes);
  if (absl::StartsWith(bytes, kPngBegins)) return DecodePng(bytes);
  return absl::InvalidArgumentError("neither a JPEG nor a PNG");
}

}  // namespace parley
