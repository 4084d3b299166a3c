#include "client/parley/start_text.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

TensorSpec Tensor(const std::string& name) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(F32);
  tensor.add_shape(3);
  return tensor;
}

TEST(StartText, WeightsThatDoNotMatchAreNamedToTheLast) {
  ModelDescription model = {.tensors = {}, .training_samples = 10, .test_samples = 0};
  StartPoint start;
  start.folder = "/w/model.safetensors";
  start.weights.emplace().path = start.folder;
  for (int i = 0; i < 500; ++i) {
    model.tensors.push_back(Tensor(absl::StrCat("layers.", i, ".weight")));
    start.weights->tensors.push_back(model.tensors.back());
  }
  EXPECT_TRUE(CheckModelStart(start, model).ok());
  start.weights->tensors.clear();
  const absl::Status status = CheckModelStart(start, model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* word :
       {"checkpoint.start_from: ", "/w/model.safetensors", "(500)", "'layers.499.weight'"}) {
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << word;
  }
  EXPECT_EQ(StartText(start),
            "starts from          /w/model.safetensors: parameters and buffers; optimizer, steps "
            "and data anew\n");
}

TEST(StartText, ACheckpointMustBeOfTheSameTensorsAndData) {
  StartPoint start;
  start.folder = "/c/step-00000005";
  start.manifest.set_step(5);
  start.manifest.set_job_name("small");
  *start.manifest.add_tensors() = Tensor("w");
  start.manifest.mutable_data_position()->add_used()->set_end(8);
  EXPECT_TRUE(CheckModelStart(start, {{Tensor("w")}, 10, 0}).ok());
  EXPECT_FALSE(CheckModelStart(start, {{Tensor("w")}, 7, 0}).ok());
  EXPECT_FALSE(CheckModelStart(start, {{Tensor("v")}, 10, 0}).ok());
  EXPECT_EQ(StartText(start), "starts from          /c/step-00000005: step 5 of job small\n");
}

}  // namespace
}  // namespace parley
