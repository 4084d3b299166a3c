#include "client/parley/model_description.h"

#include <gtest/gtest.h>

#include <string>

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
}

TEST(ModelDescription, EveryPrefixIsRefusedWithoutACrash) {
  const std::string good = kGood;
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseModelDescription(good.substr(0, length)).ok()) << length;
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

}  // namespace
}  // namespace parley
