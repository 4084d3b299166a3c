#include "common/checkpoint/weights.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

TensorSpec Tensor(const std::string& name, DataType dtype, const std::vector<int64_t>& shape,
                  bool buffer = false) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(dtype);
  tensor.set_buffer(buffer);
  for (const int64_t size : shape) tensor.add_shape(size);
  return tensor;
}

// What a file says: it knows no buffers.
Weights File() {
  Weights weights;
  weights.path = "/w/model.safetensors";
  weights.tensors = {Tensor("norm.batches", I64, {}), Tensor("fc.weight", F32, {3, 4}),
                     Tensor("fc.bias", F32, {3})};
  return weights;
}

std::vector<TensorSpec> Model() {
  return {Tensor("fc.weight", F32, {3, 4}), Tensor("fc.bias", F32, {3}),
          Tensor("norm.batches", I64, {}, true)};
}

TEST(Weights, OfTheSameNamesShapesAndTypesFitInAnyOrder) {
  EXPECT_EQ(CheckWeights(File(), Model()), absl::OkStatus());
}

TEST(Weights, AllThatDoesNotMatchIsInOneLineWithBothShapes) {
  Weights weights = File();
  weights.tensors[1] = Tensor("fc.weight", F32, {4, 3});
  weights.tensors[0] = Tensor("norm.batches", I32, {});
  weights.tensors[2].set_name("head.bias");
  weights.tensors.push_back(Tensor("head.weight", F16, {2, 2}));
  std::vector<TensorSpec> model = Model();
  model.push_back(Tensor("fc2.weight", F32, {5}));
  EXPECT_EQ(CheckWeights(weights, model),
            absl::InvalidArgumentError(
                "cannot start from the weights /w/model.safetensors: tensors of the model that the "
                "file lacks (2): 'fc.bias' F32 [3], 'fc2.weight' F32 [5]; tensors of another shape "
                "or type (2): 'fc.weight' is F32 [3, 4] in the model and F32 [4, 3] in the file, "
                "'norm.batches' is I64 [] in the model and I32 [] in the file; tensors of the file "
                "that the model lacks, which checkpoint.ignore_unexpected: true leaves out (2): "
                "'head.bias' F32 [3], 'head.weight' F16 [2, 2]"));
}

TEST(Weights, UnexpectedTensorsMayBeIgnoredButMissingOnesMayNot) {
  Weights weights = File();
  weights.tensors.push_back(Tensor("head.weight", F32, {2}));
  EXPECT_FALSE(CheckWeights(weights, Model()).ok());
  weights.ignore_unexpected = true;
  EXPECT_EQ(CheckWeights(weights, Model()), absl::OkStatus());
  weights.tensors.erase(weights.tensors.begin() + 1);
  EXPECT_TRUE(absl::StrContains(CheckWeights(weights, Model()).message(), "'fc.weight'"));
}

TEST(Weights, AnEmptyTensorIsNotUnexpected) {
  Weights weights = File();
  weights.tensors.push_back(Tensor("nothing", F32, {0, 7}));
  EXPECT_EQ(CheckWeights(weights, Model()), absl::OkStatus());
}

TEST(Weights, TypesAreWidenedOnly) {
  const std::vector<DataType> all = {F32, F64, F16, BF16, I64, I32, U8, BOOL};
  int widened = 0;
  for (const DataType from : all) {
    for (const DataType to : all) {
      Weights weights;
      weights.tensors = {Tensor("w", from, {2})};
      const bool fits = CheckWeights(weights, {Tensor("w", to, {2})}).ok();
      EXPECT_EQ(fits, CanWiden(from, to));
      widened += fits && from != to ? 1 : 0;
    }
  }
  EXPECT_EQ(widened, 5) << "F16 and BF16 to F32 and F64, F32 to F64";
  EXPECT_FALSE(CanWiden(F64, F32));
  EXPECT_FALSE(CanWiden(BF16, F16));
}

// Tied weights lie in the file once, under whichever name, and the model knows one or both.
TEST(Weights, ATiedTensorHasBothNames) {
  Weights weights = File();
  weights.tensors.push_back(Tensor("decoder.weight", F32, {8, 2}));
  weights.tied = {{"encoder.weight", "decoder.weight"}, {"x", "not there"}};
  for (const std::vector<std::string>& names : std::vector<std::vector<std::string>>{
           {"decoder.weight"}, {"encoder.weight"}, {"decoder.weight", "encoder.weight"}}) {
    std::vector<TensorSpec> model = Model();
    for (const std::string& name : names) model.push_back(Tensor(name, F32, {8, 2}));
    EXPECT_EQ(CheckWeights(weights, model), absl::OkStatus()) << names[0];
  }
  EXPECT_TRUE(absl::StrContains(CheckWeights(weights, Model()).message(), "'decoder.weight'"));
}

TEST(Weights, AMessageStaysShortHoweverMuchDoesNotMatchUnlessAllIsAskedFor) {
  Weights weights;
  std::vector<TensorSpec> model;
  for (int i = 0; i < 5000; ++i) {
    weights.tensors.push_back(Tensor(absl::StrCat("there.", i), F32, {1}));
    model.push_back(Tensor(absl::StrCat("here.", i), F32, {1}));
  }
  model.push_back(Tensor(std::string(100'000, '\n'), F32, {1}));
  const absl::Status status = CheckWeights(weights, model);
  EXPECT_LT(status.message().size(), 4000U);
  EXPECT_TRUE(absl::StrContains(status.message(), "(5001): 'here.0' F32 [1], 'here.1'")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), " more; ")) << status;
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  const absl::Status all = CheckWeights(weights, model, kListAll);
  EXPECT_TRUE(absl::StrContains(all.message(), "'there.4999'"));
  EXPECT_FALSE(absl::StrContains(all.message(), " more"));
}

}  // namespace
}  // namespace parley
