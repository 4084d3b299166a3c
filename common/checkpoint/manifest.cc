#include "common/checkpoint/manifest.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_blocks.h"
#include "common/checkpoint/latest.h"
#include "common/crc32.h"
#include "common/tensor.h"

namespace parley {
namespace {

constexpr char kManifest[] = "manifest.json";
constexpr char kLatest[] = "latest";
constexpr uint32_t kFormatWithoutSum = 1;
constexpr uint64_t kMostManifestBytes = 256 << 20;
constexpr uint64_t kMostLatestBytes = 4096;

// The folder above, and the name in it, of a path that may end with '/'.
std::pair<std::string, std::string> Split(const std::string& path) {
  std::filesystem::path whole = std::filesystem::path(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  const std::string above = whole.parent_path().string();
  return {above.empty() ? "." : above, whole.filename().string()};
}

std::string SumOf(Manifest manifest) {
  manifest.clear_crc32();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // maps by key
    manifest.SerializeToCodedStream(&coded);
  }
  return Crc32Text(Crc32(0, std::string_view(bytes)));
}

// 0 and -0 are the same. Maps are compared and taken out first: reflection over a map crashes in
// programs built for the thread sanitizer, where Debian's libprotobuf was not.
bool SaysTheSame(Manifest a, Manifest b) {
  const auto has = [&](const auto& entry) {
    const auto found = b.optimizer_steps().find(entry.first);
    return found != b.optimizer_steps().end() && found->second == entry.second;
  };
  if (a.optimizer_steps_size() != b.optimizer_steps_size() ||
      !std::all_of(a.optimizer_steps().begin(), a.optimizer_steps().end(), has)) {
    return false;
  }
  a.clear_optimizer_steps();
  b.clear_optimizer_steps();
  google::protobuf::util::DefaultFieldComparator values;
  values.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&values);
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  return differencer.Compare(a, b);
}

absl::StatusOr<std::string> ToJson(const Manifest& manifest) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(manifest, &json, options);
  if (status.ok()) return json;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot be written as JSON: ", status.message().ToString()));
}

// `lenient`: what this release does not know is left out.
absl::StatusOr<Manifest> FromJson(std::string_view json, bool lenient = false) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = lenient;
  Manifest manifest;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &manifest, options);
  if (status.ok()) return manifest;
  return absl::InvalidArgumentError(
      absl::StrCat("is no manifest in JSON: ", status.message().ToString()));
}

bool IsPossible(const TensorSpec& tensor) {
  if (tensor.name().empty() || ElementBytes(tensor.dtype()) == 0) return false;
  bool empty = false;
  for (const int64_t size : tensor.shape()) {
    if (size < 0) return false;
    empty = empty || size == 0;
  }
  return empty || ElementCount(tensor) > 0;
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status UnknownFormat(uint32_t format) {
  return absl::InvalidArgumentError(absl::StrCat("format ", format,
                                                 " is unknown; this release reads formats ",
                                                 kFormatWithoutSum, " to ", kCheckpointFormat));
}

// Nobody has written a manifest that cannot be read, or makes no sense.
absl::Status Damaged(const absl::Status& what) {
  return absl::DataLossError(absl::StrCat("is damaged, or was changed by hand: ", what.message()));
}

// Whether it is of a later release, and not of this one with a changed number.
bool IsLater(const Manifest& manifest) {
  if (manifest.format() <= kCheckpointFormat) return false;
  Manifest as_written = manifest;
  as_written.set_format(kCheckpointFormat);
  return SumOf(as_written) != manifest.crc32();
}

// Whether it may be a later release's of this format, whose job has fields that were not there yet:
// its sum is of these too. That it is right cannot be known here, where nobody knows their numbers.
bool MaySayMore(const Manifest& known) {
  return known.format() == kCheckpointFormat && !known.crc32().empty() &&
         SumOf(known) != known.crc32();
}

absl::Status UnknownFields(const absl::Status& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "has fields unknown here: it is of a later release, or damaged: ", what.message()));
}

}  // namespace

absl::Status CheckManifest(const Manifest& manifest) {
  if (manifest.format() < kFormatWithoutSum || manifest.format() > kCheckpointFormat) {
    return UnknownFormat(manifest.format());
  }
  std::set<std::string> names;
  for (const TensorSpec& tensor : manifest.tensors()) {
    if (!IsPossible(tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name(), "' has no name, no type or an impossible shape"));
    }
    if (!names.insert(tensor.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name(), "' comes twice"));
    }
  }
  for (const CheckpointFile& file : manifest.files()) {
    if (!IsPlainName(file.name()) || !names.insert(absl::StrCat("/", file.name())).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("file '", file.name(), "' comes twice or is no name of a file"));
    }
    if (absl::Status status = FileBlocks::Check(file); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FormatManifest(Manifest manifest) {
  manifest.set_format(kCheckpointFormat);
  manifest.clear_crc32();
  // The sum is of what a reader gets, which is not always what was given: JSON has no -0, and of a
  // name that is not UTF-8 something else is read. Better to learn the latter here than when
  // somebody needs the checkpoint.
  absl::StatusOr<std::string> json = ToJson(manifest);
  if (!json.ok()) return json.status();
  absl::StatusOr<Manifest> read = FromJson(*json);
  if (!read.ok()) return read.status();
  if (!SaysTheSame(manifest, *read)) {
    return absl::InvalidArgumentError(
        "has a text that is not UTF-8, or another value that JSON cannot keep");
  }
  read->set_crc32(SumOf(*read));
  return ToJson(*read);
}

absl::StatusOr<Manifest> ParseManifest(std::string_view json) {
  absl::StatusOr<Manifest> manifest = FromJson(json);
  if (!manifest.ok()) {
    const absl::StatusOr<Manifest> known = FromJson(json, /*lenient=*/true);
    if (known.ok() && IsLater(*known)) return UnknownFormat(known->format());
    if (known.ok() && MaySayMore(*known)) return UnknownFields(manifest.status());
    return Damaged(manifest.status());
  }
  // Of a later release's nothing else is known.
  if (IsLater(*manifest)) return UnknownFormat(manifest->format());
  // Where there is a sum it counts, whichever of the formats it is said to be.
  if (manifest->format() != kFormatWithoutSum || !manifest->crc32().empty()) {
    const std::string sum = SumOf(*manifest);
    if (sum != manifest->crc32()) {
      return absl::DataLossError(
          absl::StrCat("is damaged, or was changed by hand: the CRC-32 of what it says is ", sum,
                       " where '", absl::CHexEscape(manifest->crc32()), "' was written"));
    }
  }
  if (absl::Status wrong = CheckManifest(*manifest); !wrong.ok()) return Damaged(wrong);
  return manifest;
}

absl::StatusOr<Manifest> ReadManifest(FileSystem& files, const std::string& step_folder) {
  const std::string path = absl::StrCat(step_folder, "/", kManifest);
  const absl::StatusOr<std::string> json = ReadWholeFile(files, path, kMostManifestBytes);
  // No manifest is a folder, or so large.
  if (absl::IsInvalidArgument(json.status())) return absl::DataLossError(json.status().message());
  if (!json.ok()) return json.status();
  absl::StatusOr<Manifest> manifest = ParseManifest(*json);
  if (!manifest.ok()) return InFile(path, manifest.status());
  return manifest;
}

absl::Status CommitCheckpoint(FileSystem& files, const std::string& step_folder,
                              Manifest manifest) {
  const std::string path = absl::StrCat(step_folder, "/", kManifest);
  manifest.set_format(kCheckpointFormat);
  if (absl::Status status = CheckManifest(manifest); !status.ok()) return InFile(path, status);
  for (const CheckpointFile& file : manifest.files()) {
    const std::string data = absl::StrCat(step_folder, "/", file.name());
    const absl::StatusOr<std::unique_ptr<ReadableFile>> opened = files.Open(data);
    if (!opened.ok()) return opened.status();
    if ((*opened)->size() == file.bytes()) continue;
    return absl::DataLossError(absl::StrCat(data, ": has ", (*opened)->size(), " bytes where ",
                                            file.bytes(), " were written"));
  }
  const absl::StatusOr<std::string> json = FormatManifest(std::move(manifest));
  if (!json.ok()) return InFile(path, json.status());
  // The names of the data files, and of the folder, must be on the disk before the manifest is.
  const auto [above, name] = Split(step_folder);
  for (const std::string& folder : {step_folder, above}) {
    if (absl::Status status = files.SyncDirectory(folder); !status.ok()) return status;
  }
  if (absl::Status status = WriteFileAtomically(files, path, *json); !status.ok()) return status;
  return NameInLatest(files, step_folder);
}

absl::Status NameInLatest(FileSystem& files, const std::string& step_folder) {
  const auto [above, name] = Split(step_folder);
  return WriteFileAtomically(files, absl::StrCat(above, "/", kLatest), FormatLatest(name));
}

absl::Status RemoveLatest(FileSystem& files, const std::string& directory) {
  return files.Remove(absl::StrCat(directory, "/", kLatest));
}

absl::StatusOr<std::string> NamedByLatest(FileSystem& files, const std::string& directory) {
  const std::string latest = absl::StrCat(directory, "/", kLatest);
  const absl::StatusOr<std::string> content = ReadWholeFile(files, latest, kMostLatestBytes);
  if (!content.ok()) return content.status();
  const absl::StatusOr<std::string> name = ParseLatest(*content);
  if (!name.ok()) return InFile(latest, name.status());
  return absl::StrCat(directory, "/", *name);
}

absl::StatusOr<std::string> ResolveCheckpoint(FileSystem& files, const std::string& path) {
  // Not Exists: what cannot be looked at now may be there.
  const absl::Status whole = files.Info(absl::StrCat(path, "/", kManifest)).status();
  if (whole.ok()) return path;
  if (!absl::IsNotFound(whole)) return whole;
  const std::string latest = absl::StrCat(path, "/", kLatest);
  const absl::Status names = files.Info(latest).status();
  if (!names.ok() && !absl::IsNotFound(names)) return names;
  if (!names.ok()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": is no checkpoint: it has neither ", kManifest, " nor ", kLatest,
                     "; name a folder step-* that is whole, or the folder with ", kLatest));
  }
  absl::StatusOr<std::string> folder = NamedByLatest(files, path);
  if (!folder.ok()) return folder.status();
  const absl::Status there = files.Info(absl::StrCat(*folder, "/", kManifest)).status();
  if (!there.ok() && !absl::IsNotFound(there)) return there;
  if (!there.ok()) {
    // It was whole when its name was written.
    return absl::DataLossError(absl::StrCat(latest, ": names '", Split(*folder).second,
                                            "', which is no whole checkpoint: it has no ",
                                            kManifest));
  }
  return folder;
}

}  // namespace parley
