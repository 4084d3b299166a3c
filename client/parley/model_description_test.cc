#include "client/parley/model_description.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace parley {
namespace {

constexpr char kGood[] =
    R"({"tensors":[{"name":"w","dtype":"F32","shape":[2,3],"buffer":false},)"
    R"({"name":"n","dtype":"I64","shape":[],"buffer":true}],"training_samples":600,"test_samples":0})";

TEST(ModelDescription, IsReadFromJson) {
  const auto model = ParseModelDescription(kGood);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->tensors.size(), 2u);
  EXPECT_EQ(model->tensors[0].name(), "w");
  EXPECT_EQ(model->tensors[0].dtype(), F32);
  ASSERT_EQ(model->tensors[0].shape_size(), 2);
  EXPECT_EQ(model->tensors[0].shape(1), 3);
  EXPECT_FALSE(model->tensors[0].buffer());
  EXPECT_EQ(model->tensors[1].dtype(), I64);
  EXPECT_EQ(model->tensors[1].shape_size(), 0);
  EXPECT_TRUE(model->tensors[1].buffer());
  EXPECT_EQ(model->training_samples, 600u);
  EXPECT_EQ(model->test_samples, 0u);
  EXPECT_EQ(model->tensors[0].stages_size(), 0);
  EXPECT_TRUE(model->parts.empty());
}

constexpr char kPipeline[] =
    R"({"tensors":[{"name":"w","dtype":"F32","shape":[2],"buffer":false,"stages":[0,3]}],)"
    R"("training_samples":6,"test_samples":0,"parts":[["conv1","layer1.0"],["fc"]]})";

TEST(ModelDescription, OfAPipelineHasTheStagesOfEachTensorAndTheLayersOfEachPart) {
  const auto model = ParseModelDescription(kPipeline);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->tensors[0].stages_size(), 2);
  EXPECT_EQ(model->tensors[0].stages(0), 0u);
  EXPECT_EQ(model->tensors[0].stages(1), 3u);
  EXPECT_EQ(model->parts, (std::vector<std::vector<std::string>>{{"conv1", "layer1.0"}, {"fc"}}));
}

// Of two layers, with what the cost of the second one is, and the hop.
std::string Measured(const std::string& cost, const std::string& hop) {
  return absl::StrCat(
      R"({"tensors":[],"training_samples":6,"test_samples":0,"parts":[["conv1"],["fc"]],"costs":[)",
      R"({"forward_seconds":0.5,"backward_seconds":1,"output_bytes":8,"kept_bytes":24},)", cost,
      R"(],"input_bytes":16,"hop":)", hop, "}");
}
constexpr char kCost[] =
    R"({"forward_seconds":0.25,"backward_seconds":0.5,"output_bytes":4,"kept_bytes":12})";
constexpr char kHop[] = R"({"bytes":8,"seconds":0.002})";

TEST(ModelDescription, OfAMeasuredPipelineHasTheCostOfEachLayerAndOfAHop) {
  const auto model = ParseModelDescription(Measured(kCost, kHop));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->costs.size(), 2u);
  EXPECT_EQ(model->costs[0].forward_seconds, 0.5);
  EXPECT_EQ(model->costs[1].backward_seconds, 0.5);
  EXPECT_EQ(model->costs[0].output_bytes, 8u);
  EXPECT_EQ(model->costs[1].kept_bytes, 12u);
  EXPECT_EQ(model->input_bytes, 16u);
  ASSERT_TRUE(model->hop.has_value());
  EXPECT_EQ(model->hop->bytes, 8u);
  EXPECT_EQ(model->hop->seconds, 0.002);
}

TEST(ModelDescription, WrongCostsAreRefused) {
  for (const char* cost :
       {"3", "{}", R"({"forward_seconds":-1,"backward_seconds":0,"output_bytes":4,"kept_bytes":1})",
        R"({"forward_seconds":1,"backward_seconds":"0","output_bytes":4,"kept_bytes":1})",
        R"({"forward_seconds":1,"backward_seconds":0,"output_bytes":0.5,"kept_bytes":1})",
        R"({"forward_seconds":1,"backward_seconds":0,"output_bytes":4})"}) {
    EXPECT_FALSE(ParseModelDescription(Measured(cost, kHop)).ok()) << cost;
  }
  EXPECT_FALSE(ParseModelDescription(Measured(absl::StrCat(kCost, ",", kCost), kHop)).ok());
  const std::string no_input =
      absl::StrReplaceAll(Measured(kCost, kHop), {{R"("input_bytes":16,)", ""}});
  EXPECT_FALSE(ParseModelDescription(no_input).ok());
  for (const char* hop : {"3", "{}", R"({"bytes":8})", R"({"bytes":-8,"seconds":1})",
                          R"({"bytes":8,"seconds":null})"}) {
    EXPECT_FALSE(ParseModelDescription(Measured(kCost, hop)).ok()) << hop;
  }
}

TEST(ModelDescription, EveryPrefixIsRefusedWithoutACrash) {
  for (const std::string& good :
       {std::string(kGood), std::string(kPipeline), Measured(kCost, kHop)}) {
    for (size_t length = 0; length < good.size(); ++length) {
      EXPECT_FALSE(ParseModelDescription(good.substr(0, length)).ok()) << length;
    }
  }
}

TEST(ModelDescription, WrongTypesAreRefused) {
  for (
      const char* json :
      {"[]", "{}", R"({"tensors":3,"training_samples":1,"test_samples":1})",
       R"({"tensors":[3],"training_samples":1,"test_samples":1})",
       R"({"tensors":[{"name":3}],"training_samples":1,"test_samples":1})",
       R"({"tensors":[{"name":"w","dtype":"F33","shape":[]}],"training_samples":1,"test_samples":1})",
       R"({"tensors":[{"name":"w","dtype":"F32","shape":["a"]}],"training_samples":1,"test_samples":1})",
       R"({"tensors":[{"name":"w","dtype":"F32","shape":[],"buffer":1}],"training_samples":1,"test_samples":1})",
       R"({"tensors":[],"training_samples":-1,"test_samples":1})",
       R"({"tensors":[],"training_samples":1})"}) {
    EXPECT_FALSE(ParseModelDescription(json).ok()) << json;
  }
}

TEST(ModelDescription, WrongTypesInStagesAndPartsAreRefused) {
  for (const char* stages : {"3", "[-1]", "[\"0\"]", "[4294967296]", "[0.5]"}) {
    const auto model = ParseModelDescription(
        absl::StrCat(R"({"tensors":[{"name":"w","dtype":"F32","shape":[],"stages":)", stages,
                     R"(}],"training_samples":1,"test_samples":1})"));
    ASSERT_FALSE(model.ok()) << stages;
    EXPECT_NE(model.status().message().find("description of its model: w"), std::string::npos)
        << model.status();
  }
  for (const char* parts : {"3", "[3]", "[[]]", "[[3]]", "[[\"fc\"],\"fc\"]"}) {
    EXPECT_FALSE(ParseModelDescription(
                     absl::StrCat(R"({"tensors":[],"training_samples":1,"test_samples":1,"parts":)",
                                  parts, "}"))
                     .ok())
        << parts;
  }
}

}  // namespace
}  // namespace parley
