#include "common/safetensors/header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/tensor.h"

namespace parley {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr char kMetadata[] = "__metadata__";

// Of a name that may be anything, for messages.
std::string Printable(std::string_view text) {
  return absl::CHexEscape(absl::string_view(text.data(), std::min<size_t>(text.size(), 200)));
}

absl::Status Wrong(std::string_view tensor, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", Printable(tensor), "' ",
                                                 absl::string_view(what.data(), what.size())));
}

// Bytes of so many elements, or nullopt where the product overflows. An empty tensor's other sizes
// must be sane too.
std::optional<uint64_t> BytesOf(const TensorSpec& tensor) {
  uint64_t bytes = ElementBytes(tensor.dtype());
  for (const int64_t size : tensor.shape()) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

absl::Status ParseShape(const std::string& name, const json& shape, TensorSpec& tensor) {
  if (!shape.is_array()) return Wrong(name, "has no shape that is a list");
  for (const json& size : shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{1} << 62) {
      return Wrong(name, "has a size in its shape that is no whole number from 0 on");
    }
    tensor.add_shape(static_cast<int64_t>(size.get<uint64_t>()));
  }
  return absl::OkStatus();
}

// data_begin: where the tensors' bytes begin in the file, data_bytes: how many there are.
absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name, const json& value,
                                            uint64_t data_begin, uint64_t data_bytes) {
  if (!value.is_object()) return Wrong(name, "is no object of dtype, shape and data_offsets");
  SafetensorsEntry entry;
  entry.tensor.set_name(name);

  const auto dtype = value.find("dtype");
  if (dtype == value.end() || !dtype->is_string()) return Wrong(name, "has no dtype");
  entry.tensor.set_dtype(ParseDataType(dtype->get_ref<const std::string&>()));
  if (entry.tensor.dtype() == DATA_TYPE_UNSPECIFIED) {
    return Wrong(name, absl::StrCat("has dtype '", Printable(dtype->get_ref<const std::string&>()),
                                    "'; F32, F64, F16, BF16, I64, I32, U8 and BOOL are known"));
  }

  const auto shape = value.find("shape");
  if (shape == value.end()) return Wrong(name, "has no shape");
  if (absl::Status status = ParseShape(name, *shape, entry.tensor); !status.ok()) return status;

  const auto offsets = value.find("data_offsets");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return Wrong(name, "has no data_offsets that are two whole numbers");
  }
  const uint64_t begin = (*offsets)[0].get<uint64_t>();
  const uint64_t end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data_bytes) {
    return Wrong(name, absl::StrCat("has data_offsets [", begin, ", ", end, "]; the file has ",
                                    data_bytes, " bytes of tensors"));
  }
  const std::optional<uint64_t> bytes = BytesOf(entry.tensor);
  if (!bytes.has_value() || *bytes != end - begin) {
    return Wrong(name, absl::StrCat("has ", end - begin, " bytes where its shape needs ",
                                    bytes.has_value() ? absl::StrCat(*bytes) : "more than exist"));
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

absl::Status ParseMetadata(const json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return absl::InvalidArgumentError("__metadata__ is no object of texts");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__ has '", Printable(key), "', which is no text"));
    }
    metadata[key] = text.get_ref<const std::string&>();
  }
  return absl::OkStatus();
}

// Whether the tensors, sorted by place, follow each other from data_begin to the end of the file.
absl::Status CheckPlaces(const std::vector<SafetensorsEntry>& tensors, uint64_t data_begin,
                         uint64_t file_size) {
  uint64_t end = data_begin;
  for (const SafetensorsEntry& entry : tensors) {
    if (entry.begin != end) {
      return Wrong(entry.tensor.name(),
                   absl::StrCat("begins at byte ", entry.begin, " where the one before ends at ",
                                end, entry.begin < end ? ": they overlap" : ": there is a gap"));
    }
    end = entry.end;
  }
  if (end == file_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bytes ", end, " to ", file_size, " belong to no tensor"));
}

// The JSON of a text, or nullopt where it is not UTF-8.
std::optional<std::string> Quoted(const std::string& text) {
  std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::ignore);
  const json back = json::parse(quoted, nullptr, false);
  if (!back.is_string() || back.get_ref<const std::string&>() != text) return std::nullopt;
  return quoted;
}

std::string Length(uint64_t length) {
  std::string bytes;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::string_view first_bytes, uint64_t file_size) {
  if (file_size < kLengthBytes || first_bytes.size() < kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is no safetensors file: it has ", std::min<uint64_t>(file_size, first_bytes.size()),
        " bytes, and the length of the header takes 8"));
  }
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(first_bytes[i])} << (8 * i);
  }
  if (length > kMostSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("is no safetensors file: bytes 0 to 8 say that its header has ", length,
                     " bytes; at most ", kMostSafetensorsHeaderBytes, " are accepted"));
  }
  if (length > file_size - kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("is truncated or no safetensors file: bytes 0 to 8 say that its header has ",
                     length, " bytes, and the file has ", file_size));
  }
  return kLengthBytes + length;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view bytes,
                                                         uint64_t file_size) {
  const absl::StatusOr<uint64_t> data_begin = SafetensorsHeaderBytes(bytes, file_size);
  if (!data_begin.ok()) return data_begin.status();
  if (bytes.size() < *data_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("ends in its header: ", bytes.size(), " of ", *data_begin, " bytes"));
  }
  const std::string_view text = bytes.substr(kLengthBytes, *data_begin - kLengthBytes);
  // A name that comes twice would hide a tensor.
  std::set<std::string> names;
  std::optional<std::string> twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key) {
      const std::string& name = parsed.get_ref<const std::string&>();
      if (!names.insert(name).second) twice = name;
    }
    return true;
  };
  const json root = json::parse(text.begin(), text.end(), watch, false);
  if (!root.is_object() || text.front() != '{') {
    return absl::InvalidArgumentError(absl::StrCat("is no safetensors file: bytes 8 to ",
                                                   *data_begin, " should be a JSON object"));
  }
  if (twice.has_value()) return Wrong(*twice, "comes twice");

  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) {
      if (absl::Status status = ParseMetadata(value, header.metadata); !status.ok()) return status;
      continue;
    }
    absl::StatusOr<SafetensorsEntry> entry =
        ParseEntry(name, value, *data_begin, file_size - *data_begin);
    if (!entry.ok()) return entry.status();
    header.tensors.push_back(*std::move(entry));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  if (absl::Status status = CheckPlaces(header.tensors, *data_begin, file_size); !status.ok()) {
    return status;
  }
  return header;
}

absl::StatusOr<std::string> FormatSafetensorsHeader(
    const std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    absl::StrAppend(&text, "\"", kMetadata, "\":{");
    for (const auto& [key, value] : metadata) {
      const std::optional<std::string> quoted_key = Quoted(key);
      const std::optional<std::string> quoted_value = Quoted(value);
      if (!quoted_key.has_value() || !quoted_value.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("metadata '", Printable(key), "' is not UTF-8"));
      }
      absl::StrAppend(&text, text.back() == '{' ? "" : ",", *quoted_key, ":", *quoted_value);
    }
    text += "}";
  }
  std::set<std::string> names;
  uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    const std::optional<std::string> name = Quoted(tensor.name());
    if (!name.has_value()) return Wrong(tensor.name(), "has a name that is not UTF-8");
    if (tensor.name() == kMetadata || !names.insert(tensor.name()).second) {
      return Wrong(tensor.name(), "has a name that is taken");
    }
    const uint64_t element = ElementBytes(tensor.dtype());
    if (element == 0) return Wrong(tensor.name(), "has no type");
    const std::optional<uint64_t> bytes = BytesOf(tensor);
    uint64_t end = 0;
    if (!bytes.has_value() || __builtin_add_overflow(offset, *bytes, &end)) {
      return Wrong(tensor.name(), "has an impossible shape");
    }
    if (offset % element != 0) return Wrong(tensor.name(), "would not be aligned in this order");
    std::string shape;
    for (const int64_t size : tensor.shape())
      absl::StrAppend(&shape, shape.empty() ? "" : ",", size);
    const std::string_view dtype = DataTypeName(tensor.dtype());
    absl::StrAppend(&text, text == "{" ? "" : ",", *name, ":{\"dtype\":\"",
                    absl::string_view(dtype.data(), dtype.size()), "\",\"shape\":[", shape,
                    "],\"data_offsets\":[", offset, ",", end, "]}");
    offset = end;
  }
  text += "}";
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kMostSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header of ", tensors.size(),
                                                   " tensors would have ", text.size(), " bytes"));
  }
  return Length(text.size()) + text;
}

void SortForSafetensors(std::vector<TensorSpec>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return ElementBytes(a.dtype()) > ElementBytes(b.dtype());
  });
}

}  // namespace parley
