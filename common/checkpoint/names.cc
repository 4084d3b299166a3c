#include "common/checkpoint/names.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/tensor.h"

namespace parley {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Digits alone, as PieceOf writes them: SimpleAtoi takes signs, spaces and leading zeros too.
bool ParseNumber(std::string_view digits, uint64_t& number) {
  return absl::SimpleAtoi(View(digits), &number) && absl::StrCat(number) == View(digits);
}

}  // namespace

std::string StepFolderName(uint64_t step) { return absl::StrFormat("step-%08d", step); }

std::optional<uint64_t> StepOfFolder(std::string_view name) {
  const absl::string_view view = View(name);
  uint64_t step = 0;
  if (!absl::StartsWith(view, "step-") || !absl::SimpleAtoi(view.substr(5), &step) ||
      StepFolderName(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::string ShardFileName(uint32_t shard, uint64_t job_epoch) {
  return absl::StrCat("shard-", shard, job_epoch > 1 ? absl::StrCat(".e", job_epoch) : "",
                      ".safetensors");
}

std::string StateName(std::string_view tensor, std::string_view state) {
  return absl::StrCat(View(tensor), ".", View(state));
}

std::string OptimizerStepsKey(std::string_view tensor, uint64_t begin) {
  std::string key(tensor);
  if (begin != 0) absl::StrAppend(&key, "@", begin);
  return key;
}

TensorSpec PieceOf(const TensorSpec& tensor, uint64_t begin, uint64_t end) {
  TensorSpec piece;
  piece.set_dtype(tensor.dtype());
  if (begin == 0 && end == ElementCount(tensor)) {
    piece.set_name(tensor.name());
    *piece.mutable_shape() = tensor.shape();
    return piece;
  }
  piece.set_name(absl::StrCat(tensor.name(), "@", begin, ":", end));
  piece.add_shape(static_cast<int64_t>(end - begin));
  return piece;
}

PieceName ParsePieceName(std::string_view name) {
  const size_t at = name.rfind('@');
  const size_t colon = name.rfind(':');
  PieceName::Range range;
  if (at != std::string_view::npos && colon != std::string_view::npos && at < colon &&
      ParseNumber(name.substr(at + 1, colon - at - 1), range.begin) &&
      ParseNumber(name.substr(colon + 1), range.end)) {
    return {std::string(name.substr(0, at)), range};
  }
  return {std::string(name), std::nullopt};
}

}  // namespace parley
