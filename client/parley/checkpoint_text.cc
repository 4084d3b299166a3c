#include "client/parley/checkpoint_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/parley/units.h"
#include "common/tensor.h"

namespace parley {

std::string CheckpointText(const std::string& folder, const Manifest& manifest) {
  std::string text;
  const auto add = [&text](const char* name, const std::string& value) {
    absl::StrAppendFormat(&text, "%-12s %s\n", name, value);
  };
  uint64_t used = 0;
  for (const SampleRange& range : manifest.data_position().used()) {
    used += range.end() - range.begin();
  }
  add("checkpoint", folder);
  add("job", manifest.job_name());
  add("step", absl::StrCat(manifest.step()));
  add("data", absl::StrCat("epoch ", manifest.data_position().epoch(), ", ", used,
                           " samples of it used; seed ", manifest.seed()));
  add("job epoch", absl::StrCat(manifest.job_epoch(), ", view ", manifest.view_epoch()));
  for (const CheckpointFile& file : manifest.files()) {
    add("file", absl::StrCat(file.name(), "  ", BytesText(file.bytes()), "  crc32 ", file.crc32()));
  }
  text += "\n";
  for (const TensorSpec& tensor : manifest.tensors()) {
    std::string note = tensor.buffer() ? "buffer" : "";
    if (const auto steps = manifest.optimizer_steps().find(tensor.name());
        steps != manifest.optimizer_steps().end()) {
      note = absl::StrCat("optimizer's step ", steps->second);
    }
    absl::StrAppendFormat(&text, "%-40s %-4s %-20s %10s  %s\n", tensor.name(),
                          DataTypeName(tensor.dtype()),
                          absl::StrCat("[", absl::StrJoin(tensor.shape(), ","), "]"),
                          BytesText(ByteCount(tensor)), note);
  }
  return text;
}

}  // namespace parley
