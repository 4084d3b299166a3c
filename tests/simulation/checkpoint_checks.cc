#include "tests/simulation/checkpoint_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/reader.h"

namespace parley {

void CheckpointChecks::Look(FileSystem& files, const std::string& folder) {
  const auto broken = [&](absl::string_view what) {
    broken_.push_back(absl::StrCat("the checkpoint ", folder, ": ", what));
  };
  const auto reader = CheckpointReader::Open(files, folder);
  // A fault of the disk hits whoever reads: it is there.
  if (absl::IsUnavailable(reader.status()) || absl::IsNotFound(reader.status())) return;
  if (!reader.ok()) return broken(reader.status().message());
  Found found;
  found.folder = folder;
  found.step = (*reader)->manifest().step();
  found.position = (*reader)->manifest().data_position();
  for (const TensorSpec& tensor : model_.Specs()) {
    const auto elements = static_cast<uint64_t>(tensor.shape(0));
    std::vector<float> values(elements);
    const absl::Status read = (*reader)->Read(
        tensor.name(), 0, elements,
        absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), elements * sizeof(float)));
    if (absl::IsUnavailable(read)) return;
    if (!read.ok()) return broken(read.message());
    found.values.insert(found.values.end(), values.begin(), values.end());
  }
  if (const absl::Status whole = (*reader)->VerifyRead(); !whole.ok()) {
    if (!absl::IsUnavailable(whole)) broken(whole.message());
    return;
  }
  Judge(found);
  found_.push_back(std::move(found));
}

void CheckpointChecks::Judge(Found& found) {
  const auto expected = found.judged ? std::nullopt : expected_(found.step);
  if (!expected.has_value()) return;
  found.judged = true;
  for (size_t element = 0; element < expected->size(); ++element) {
    if (found.values[element] == (*expected)[element]) continue;
    broken_.push_back(absl::StrCat("the checkpoint ", found.folder, " has ", found.values[element],
                                   " for element ", element, ", the verdicts make ",
                                   (*expected)[element]));
    return;
  }
}

void CheckpointChecks::RollBack(uint64_t version) {
  found_.erase(std::remove_if(found_.begin(), found_.end(),
                              [&](const Found& found) { return found.step > version; }),
               found_.end());
}

void CheckpointChecks::End(const std::map<uint64_t, DataPosition>& positions) {
  for (Found& found : found_) Judge(found);
  for (const Found& found : found_) {
    const auto expected = positions.find(found.step);
    if (expected != positions.end() &&
        expected->second.SerializeAsString() == found.position.SerializeAsString()) {
      continue;
    }
    broken_.push_back(absl::StrCat("the checkpoint ", found.folder, " has the data position ",
                                   found.position.ShortDebugString()));
  }
}

}  // namespace parley
