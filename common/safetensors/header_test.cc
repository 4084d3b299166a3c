#include "common/safetensors/header.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

TensorSpec Tensor(const std::string& name, DataType dtype, const std::vector<int64_t>& shape) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(dtype);
  for (const int64_t size : shape) tensor.add_shape(size);
  return tensor;
}

// A header with this JSON, and the length in front.
std::string File(const std::string& json) {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json;
}

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)",
                      offsets, "}");
}

TEST(SafetensorsHeader, IsWrittenAsTheFormatSays) {
  const auto header = FormatSafetensorsHeader(
      {Tensor("conv1.weight", F32, {2, 3}), Tensor("n", I64, {})}, {{"format", "pt"}});
  ASSERT_TRUE(header.ok()) << header.status();
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"conv1.weight":{"dtype":"F32","shape":[2,3],)"
      R"("data_offsets":[0,24]},"n":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})";
  EXPECT_EQ(header->substr(8, json.size()), json);
  EXPECT_EQ(header->size() % 8, 0U);
  EXPECT_EQ(header->find_first_not_of(' ', 8 + json.size()), std::string::npos);
  EXPECT_EQ(*SafetensorsHeaderBytes(*header, header->size() + 32), header->size());
}

TEST(SafetensorsHeader, IsReadAsItWasWritten) {
  const std::vector<TensorSpec> tensors = {
      Tensor("a", F64, {3}),     Tensor("quote\" \\ \n", F32, {2, 0, 5}),
      Tensor("b@0:7", F32, {7}), Tensor("\xc3\xa9", BF16, {1, 1, 1}),
      Tensor("h", F16, {}),      Tensor("i", I32, {1}),
      Tensor("u", U8, {3}),      Tensor("t", BOOL, {2}),
  };
  const auto bytes = FormatSafetensorsHeader(tensors, {{"k\"", "v\n"}, {"empty", ""}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const uint64_t data = 24 + 0 + 28 + 2 + 2 + 4 + 3 + 2;
  const auto header = ParseSafetensorsHeader(*bytes, bytes->size() + data);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata, (std::map<std::string, std::string>{{"k\"", "v\n"}, {"empty", ""}}));
  ASSERT_EQ(header->tensors.size(), tensors.size());
  std::map<std::string, std::string> written, read;
  for (const TensorSpec& tensor : tensors) written[tensor.name()] = tensor.SerializeAsString();
  for (const auto& entry : header->tensors) {
    read[entry.tensor.name()] = entry.tensor.SerializeAsString();
  }
  EXPECT_EQ(read, written);
  EXPECT_EQ(header->tensors.front().begin, bytes->size());
  EXPECT_EQ(header->tensors.back().end, bytes->size() + data);
}

TEST(SafetensorsHeader, WhatCannotBeWrittenIsRefused) {
  const std::vector<std::vector<TensorSpec>> table = {
      {Tensor("a", F32, {1}), Tensor("a", F32, {1})},
      {Tensor("__metadata__", F32, {1})},
      {Tensor("a", DATA_TYPE_UNSPECIFIED, {1})},
      {Tensor("a", static_cast<DataType>(99), {1})},
      {Tensor("a", F32, {-1})},
      {Tensor("a", F32, {int64_t{1} << 62, 4})},
      {Tensor("a", U8, {int64_t{1} << 62}), Tensor("b", U8, {int64_t{1} << 62}),
       Tensor("c", U8, {int64_t{1} << 62}), Tensor("d", U8, {int64_t{1} << 62})},
      {Tensor("a", U8, {3}), Tensor("b", F32, {1})},
      {Tensor("\xff", F32, {1})},
  };
  for (const auto& tensors : table) {
    EXPECT_EQ(FormatSafetensorsHeader(tensors, {}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << tensors.back().ShortDebugString();
  }
  EXPECT_FALSE(FormatSafetensorsHeader({}, {{"a", "\xff"}}).ok());
  EXPECT_FALSE(FormatSafetensorsHeader({}, {{"\xc0", "a"}}).ok());
}

TEST(SafetensorsHeader, SortingAlignsEveryTensor) {
  std::vector<TensorSpec> tensors = {Tensor("a", U8, {3}), Tensor("b", F16, {1}),
                                     Tensor("c", F32, {1}), Tensor("d", I64, {1}),
                                     Tensor("e", F32, {1})};
  SortForSafetensors(tensors);
  std::string order;
  for (const TensorSpec& tensor : tensors) order += tensor.name();
  EXPECT_EQ(order, "dceba");
  EXPECT_TRUE(FormatSafetensorsHeader(tensors, {}).ok());
}

TEST(SafetensorsHeader, DamageIsNamed) {
  struct Row {
    std::string json;
    uint64_t data;
    std::string word;
  };
  const std::string good = Entry("F32", "[2]", "[0,8]");
  const std::vector<Row> table = {
      {"", 0, "JSON"},
      {"[]", 0, "JSON"},
      {"null", 0, "JSON"},
      {" {}", 0, "JSON"},
      {"{", 0, "JSON"},
      {"{}x", 0, "JSON"},
      {"{\"a\":" + good + ",}", 8, "JSON"},
      {"{\"\xff\":" + good + "}", 8, "JSON"},
      {std::string(100000, '['), 0, "JSON"},
      {std::string(100000, '{'), 0, "JSON"},
      {"{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0, "'a'"},
      {"{\"a\":" + good + ",\"a\":" + good + "}", 8, "'a' comes twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "comes twice"},
      {"{\"__metadata__\":3}", 0, "__metadata__"},
      {"{\"__metadata__\":{\"k\":3}}", 0, "'k'"},
      {"{\"a\":7}", 0, "'a' is no object"},
      {"{\"a\":{}}", 0, "'a' has no dtype"},
      {"{\"a\":" + Entry("I16", "[2]", "[0,4]") + "}", 4, "'I16'"},
      {"{\"a\":" + Entry("f32", "[2]", "[0,8]") + "}", 8, "'f32'"},
      {R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8, "dtype"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "shape"},
      {"{\"a\":" + Entry("F32", "2", "[0,8]") + "}", 8, "shape"},
      {"{\"a\":" + Entry("F32", "[-2]", "[0,8]") + "}", 8, "shape"},
      {"{\"a\":" + Entry("F32", "[2.0]", "[0,8]") + "}", 8, "shape"},
      {"{\"a\":" + Entry("F32", "[\"2\"]", "[0,8]") + "}", 8, "shape"},
      {"{\"a\":" + Entry("F32", "[1e400]", "[0,8]") + "}", 8, ""},
      {"{\"a\":" + Entry("F32", "[18446744073709551615]", "[0,8]") + "}", 8, "shape"},
      {"{\"a\":" + Entry("F32", "[4294967296,4294967296]", "[0,0]") + "}", 0, "more than exist"},
      {"{\"a\":" + Entry("F32", "[4611686018427387904,4]", "[0,0]") + "}", 0, "more than exist"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "data_offsets"},
      {"{\"a\":" + Entry("F32", "[2]", "[0]") + "}", 8, "data_offsets"},
      {"{\"a\":" + Entry("F32", "[2]", "[0,8,9]") + "}", 8, "data_offsets"},
      {"{\"a\":" + Entry("F32", "[2]", "[-8,0]") + "}", 8, "data_offsets"},
      {"{\"a\":" + Entry("F32", "[2]", "[8,0]") + "}", 8, "[8, 0]"},
      {"{\"a\":" + Entry("F32", "[2]", "[0,16]") + "}", 8, "[0, 16]"},
      {"{\"a\":" + Entry("F32", "[2]", "[18446744073709551608,0]") + "}", 8,
       "18446744073709551608"},
      {"{\"a\":" + Entry("F32", "[3]", "[0,8]") + "}", 8, "8 bytes where its shape needs 12"},
      {"{\"a\":" + good + ",\"b\":" + good + "}", 8, "overlap"},
      {"{\"a\":" + good + ",\"b\":" + Entry("F32", "[1]", "[4,8]") + "}", 8, "overlap"},
      {"{\"a\":" + good + ",\"b\":" + Entry("F32", "[1]", "[12,16]") + "}", 16, "gap"},
      {"{\"a\":" + good + "}", 12, "belong to no tensor"},
      {"{}", 1, "belong to no tensor"},
  };
  for (const Row& row : table) {
    const std::string bytes = File(row.json);
    const auto header = ParseSafetensorsHeader(bytes, bytes.size() + row.data);
    const std::string shown = row.json.substr(0, 100);
    ASSERT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << shown;
    EXPECT_TRUE(absl::StrContains(header.status().message(), row.word))
        << shown << ": '" << row.word << "' is not in: " << header.status().message();
  }
}

TEST(SafetensorsHeader, ALengthThatCannotBeIsRefusedBeforeAnythingIsRead) {
  EXPECT_FALSE(SafetensorsHeaderBytes("", 0).ok());
  EXPECT_FALSE(SafetensorsHeaderBytes("1234567", 7).ok());
  EXPECT_FALSE(SafetensorsHeaderBytes(std::string(8, '\xff'), ~uint64_t{0}).ok());
  std::string length(8, '\0');
  length[3] = 0x10;  // 256 MiB
  EXPECT_FALSE(SafetensorsHeaderBytes(length, uint64_t{1} << 40).ok());
  length[3] = 0;
  length[0] = 9;
  EXPECT_FALSE(SafetensorsHeaderBytes(length, 16).ok());
  EXPECT_EQ(*SafetensorsHeaderBytes(length, 17), 17U);
  EXPECT_FALSE(ParseSafetensorsHeader(length + "12345678", 17).ok()) << "a byte is missing";
}

// Whatever the bytes are, a header is refused or it describes exactly the file.
TEST(SafetensorsHeader, EveryFlippedByteIsAnErrorOrAConsistentHeader) {
  const auto written = FormatSafetensorsHeader(
      {Tensor("a.w", F64, {3, 2}), Tensor("b@0:7", F32, {7}), Tensor("c", U8, {})},
      {{"format", "pt"}});
  ASSERT_TRUE(written.ok());
  const uint64_t size = written->size() + 48 + 28 + 1;
  int accepted = 0;
  for (size_t at = 0; at < written->size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = *written;
      bytes[at] = static_cast<char>(value);
      const auto header = ParseSafetensorsHeader(bytes, size);
      if (!header.ok()) continue;
      ++accepted;
      uint64_t end = *SafetensorsHeaderBytes(bytes, size);
      for (const SafetensorsEntry& entry : header->tensors) {
        ASSERT_EQ(entry.begin, end);
        end = entry.end;
      }
      ASSERT_EQ(end, size);
    }
  }
  EXPECT_GT(accepted, 256) << "other names and spaces are headers too";
}

}  // namespace
}  // namespace parley
