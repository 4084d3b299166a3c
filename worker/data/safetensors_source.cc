#include "worker/data/safetensors_source.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/safetensors/reader.h"
#include "worker/data/in_memory_source.h"

namespace parley {
namespace {

struct Rows {
  uint64_t count = 0;
  SampleLayout layout;
  std::vector<std::byte> bytes;
};

absl::StatusOr<Rows> ReadRows(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry* entry = reader.Find(name);
  if (entry == nullptr || entry->tensor.shape_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        reader.path(), entry == nullptr ? " has no tensor `" : " has a scalar as `", name,
        "`; data.safetensors needs `x` and `y` with the samples along their first "
        "dimension"));
  }
  Rows rows;
  rows.count = static_cast<uint64_t>(entry->tensor.shape(0));
  rows.layout.dtype = entry->tensor.dtype();
  rows.layout.shape.assign(entry->tensor.shape().begin() + 1, entry->tensor.shape().end());
  rows.bytes.resize(entry->end - entry->begin);
  absl::Status status = reader.Read(*entry, 0, absl::MakeSpan(rows.bytes));
  if (!status.ok()) return status;
  return rows;
}

absl::StatusOr<std::shared_ptr<const DataSource>> OpenFile(const std::string& path,
                                                           FileSystem& files) {
  auto reader = SafetensorsReader::Open(files, path);
  if (absl::IsNotFound(reader.status())) {
    return absl::NotFoundError(absl::StrCat("data missing: ", reader.status().message(),
                                            ". In Python, safetensors.torch.save_file({\"x\": x, "
                                            "\"y\": y}, \"FILE\") writes such a file"));
  }
  if (!reader.ok()) return reader.status();
  auto x = ReadRows(**reader, "x");
  if (!x.ok()) return x.status();
  auto y = ReadRows(**reader, "y");
  if (!y.ok()) return y.status();
  if (x->count != y->count) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": x has ", x->count, " samples, but y has ", y->count));
  }
  return std::make_shared<RowSource>(x->count, std::move(x->layout), std::move(y->layout),
                                     std::move(x->bytes), std::move(y->bytes));
}

}  // namespace

absl::StatusOr<Datasets> OpenSafetensors(const Safetensors& settings, FileSystem& files) {
  Datasets datasets;
  auto train = OpenFile(settings.train(), files);
  if (!train.ok()) return train.status();
  datasets.train = *std::move(train);
  if (settings.test().empty()) return datasets;
  auto test = OpenFile(settings.test(), files);
  if (!test.ok()) return test.status();
  datasets.test = *std::move(test);
  return datasets;
}

}  // namespace parley
