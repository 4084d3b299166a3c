#include "common/checkpoint/export.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_for_test.h"
#include "common/safetensors/reader.h"
#include "common/tensor.h"

namespace parley {
namespace {

class Export : public testing::Test {
 protected:
  Export() : files_(PosixFileSystem()) {
    root_ = std::filesystem::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    out_ = root_ + "/a/export";
  }

  std::unique_ptr<SafetensorsReader> Open(const std::string& name) {
    auto reader = SafetensorsReader::Open(*files_, out_ + "/" + name);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  std::vector<std::byte> Value(const SafetensorsReader& reader, const SafetensorsEntry& entry) {
    std::vector<std::byte> bytes(entry.end - entry.begin);
    EXPECT_TRUE(reader.Read(entry, 0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  const std::unique_ptr<FileSystem> files_;
  std::string root_;
  std::string out_;
};

TEST_F(Export, GivesPyTorchsNamesShapesAndSteps) {
  const ModelForTest model(4);
  ASSERT_TRUE(WriteCheckpointForTest(*files_, root_ + "/step-00000123", model, 3, 1).ok());
  const absl::Status status = ExportCheckpoint(*files_, root_, out_);
  ASSERT_TRUE(status.ok()) << status;

  const auto parameters = Open("model.safetensors");
  const auto optimizer = Open("optimizer.safetensors");
  ASSERT_TRUE(parameters != nullptr && optimizer != nullptr);
  EXPECT_EQ(parameters->header().tensors.size(), 6U);
  EXPECT_EQ(optimizer->header().tensors.size(), 4U * 3);
  EXPECT_EQ(parameters->header().metadata.at("format"), "pt");
  for (const TensorSpec& tensor : model.all) {
    const SafetensorsEntry* entry = parameters->Find(tensor.name());
    const bool is_state = entry == nullptr;
    if (is_state) entry = optimizer->Find(tensor.name());
    ASSERT_NE(entry, nullptr) << tensor.name();
    TensorSpec expected = tensor;
    expected.clear_buffer();
    EXPECT_EQ(entry->tensor.SerializeAsString(), expected.SerializeAsString());
    EXPECT_EQ(Value(is_state ? *optimizer : *parameters, *entry), model.values.at(tensor.name()));
    EXPECT_EQ(entry->begin % ElementBytes(tensor.dtype()), 0U) << "aligned";
  }
  const SafetensorsEntry* step = optimizer->Find("fc1.weight.step");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->tensor.dtype(), F32);
  EXPECT_EQ(step->tensor.shape_size(), 0);
  float count = 0;
  const std::vector<std::byte> bytes = Value(*optimizer, *step);
  std::memcpy(&count, bytes.data(), sizeof(count));
  EXPECT_EQ(count, 120);
  EXPECT_EQ(optimizer->Find("norm.batches.step"), nullptr);

  std::set<std::string> left;
  const auto names = files_->List(out_);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) left.insert(name);
  EXPECT_EQ(left, (std::set<std::string>{"model.safetensors", "optimizer.safetensors"}));
}

TEST_F(Export, SgdHasNoStepCount) {
  ModelForTest model(4);
  model.manifest.mutable_job()->mutable_optimizer()->mutable_sgd()->set_rate(1);
  ASSERT_TRUE(WriteCheckpointForTest(*files_, root_ + "/step-00000123", model, 1, 1).ok());
  ASSERT_TRUE(ExportCheckpoint(*files_, root_, out_).ok());
  EXPECT_EQ(Open("optimizer.safetensors")->Find("fc1.weight.step"), nullptr);
}

TEST_F(Export, ADamagedTensorIsNotExported) {
  ASSERT_TRUE(
      WriteCheckpointForTest(*files_, root_ + "/step-00000123", ModelForTest(4), 1, 1).ok());
  const std::string path = root_ + "/step-00000123/shard-0.safetensors";
  auto content = ReadWholeFile(*files_, path);
  ASSERT_TRUE(content.ok()) << content.status();
  content->back() ^= 1;  // of the parameters or of the state, whichever is read last
  ASSERT_TRUE(WriteFileAtomically(*files_, path, *content).ok());
  const absl::Status status = ExportCheckpoint(*files_, root_, out_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
  EXPECT_FALSE(files_->Exists(out_ + "/model.safetensors"));
}

TEST_F(Export, SgdHasNoMomentumBeforeATensorsFirstStep) {
  ModelForTest model(4);
  model.manifest.mutable_job()->mutable_optimizer()->mutable_sgd()->set_rate(1);
  (*model.manifest.mutable_optimizer_steps())["fc1.weight"] = 0;
  (*model.manifest.mutable_optimizer_steps())["fc1.bias"] = 1;
  ASSERT_TRUE(WriteCheckpointForTest(*files_, root_ + "/step-00000123", model, 2, 1).ok());
  ASSERT_TRUE(ExportCheckpoint(*files_, root_, out_).ok());
  const auto optimizer = Open("optimizer.safetensors");
  EXPECT_EQ(optimizer->Find("fc1.weight.exp_avg"), nullptr);  // whatever the name of the state
  EXPECT_NE(optimizer->Find("fc1.bias.exp_avg"), nullptr);
  EXPECT_NE(Open("model.safetensors")->Find("fc1.weight"), nullptr);
}

TEST_F(Export, NoCheckpointIsNotFoundAndMakesNothing) {
  EXPECT_EQ(ExportCheckpoint(*files_, root_, out_).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(Export, AFolderThatCannotBeMadeIsTheCallers) {
  const ModelForTest model(4);
  ASSERT_TRUE(WriteCheckpointForTest(*files_, root_ + "/step-00000123", model, 2, 1).ok());
  std::ofstream(root_ + "/file") << "no folder";
  const absl::Status status = ExportCheckpoint(*files_, root_, root_ + "/file");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(root_ + "/file: "), std::string::npos) << status;
}

}  // namespace
}  // namespace parley
