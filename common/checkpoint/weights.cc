#include "common/checkpoint/weights.h"

#include <algorithm>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tensor.h"

namespace parley {
namespace {

std::string TypeAndShape(const TensorSpec& tensor) {
  return absl::StrCat(std::string(DataTypeName(tensor.dtype())), " [",
                      absl::StrJoin(tensor.shape(), ", "), "]");
}

// A file may give its tensors any names; a message is one line, and may be cut anywhere.
std::string Quoted(const std::string& name) {
  return absl::StrCat("'", absl::CHexEscape(name), "'");
}

bool HasElements(const TensorSpec& tensor) {
  return std::count(tensor.shape().begin(), tensor.shape().end(), 0) == 0;
}

bool SameShape(const TensorSpec& a, const TensorSpec& b) {
  return std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// Adds "; WHAT (3): item, item and 1 more" to a text, or nothing for an empty list.
void AddList(const std::string& what, const std::vector<std::string>& items, size_t most,
             std::string& text) {
  if (items.empty()) return;
  absl::StrAppend(&text, text.empty() ? "" : "; ", what, " (", items.size(), "): ");
  const size_t begin = text.size();
  for (size_t i = 0; i < items.size(); ++i) {
    // The first is named however long its name is.
    if (i > 0 && text.size() - begin + items[i].size() > most) {
      absl::StrAppend(&text, " and ", items.size() - i, " more");
      return;
    }
    absl::StrAppend(&text, i > 0 ? ", " : "", items[i].substr(0, most));
  }
}

}  // namespace

bool CanWiden(DataType from, DataType to) {
  if (from == to) return true;
  if (from == F16 || from == BF16) return to == F32 || to == F64;
  return from == F32 && to == F64;
}

absl::Status CheckWeights(const Weights& weights, const std::vector<TensorSpec>& model,
                          size_t most_listed) {
  std::map<std::string, const TensorSpec*> there;
  for (const TensorSpec& tensor : weights.tensors) there[tensor.name()] = &tensor;
  for (const auto& [name, kept] : weights.tied) {
    if (const auto found = there.find(kept); found != there.end()) there[name] = found->second;
  }
  std::vector<std::string> missing;
  std::vector<std::string> different;
  std::set<const TensorSpec*> expected;
  for (const TensorSpec& tensor : model) {
    const auto found = there.find(tensor.name());
    if (found == there.end()) {
      missing.push_back(absl::StrCat(Quoted(tensor.name()), " ", TypeAndShape(tensor)));
      continue;
    }
    expected.insert(found->second);
    if (!SameShape(*found->second, tensor) || !CanWiden(found->second->dtype(), tensor.dtype())) {
      different.push_back(absl::StrCat(Quoted(tensor.name()), " is ", TypeAndShape(tensor),
                                       " in the model and ", TypeAndShape(*found->second),
                                       " in the file"));
    }
  }
  std::vector<std::string> unexpected;
  for (const TensorSpec& tensor : weights.tensors) {
    // A model's empty tensors are nowhere in a job, so they are not missed here.
    if (weights.ignore_unexpected || expected.count(&tensor) != 0 || !HasElements(tensor)) continue;
    unexpected.push_back(absl::StrCat(Quoted(tensor.name()), " ", TypeAndShape(tensor)));
  }
  std::string text;
  AddList("tensors of the model that the file lacks", missing, most_listed, text);
  AddList("tensors of another shape or type", different, most_listed, text);
  AddList(
      "tensors of the file that the model lacks, which checkpoint.ignore_unexpected: true leaves "
      "out",
      unexpected, most_listed, text);
  if (text.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot start from the weights ", weights.path, ": ", text));
}

}  // namespace parley
