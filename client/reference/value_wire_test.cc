#include "client/reference/value_wire.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proto/remote_reference.pb.h"

namespace parley {
namespace {

std::string Flat(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  std::string flat;
  for (const grpc::Slice& slice : slices) {
    flat.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return flat;
}

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

ValueTensor Tensor(std::vector<int64_t> shape, size_t elements, uint64_t seed) {
  auto memory = std::make_shared<std::vector<float>>(elements);
  std::mt19937_64 random(seed);
  for (float& value : *memory) value = static_cast<float>(random() % 1000);
  ValueTensor tensor;
  tensor.dtype = F32;
  tensor.shape = std::move(shape);
  tensor.bytes = TensorBytes::Piece(reinterpret_cast<const std::byte*>(memory->data()),
                                    elements * sizeof(float));
  tensor.owner = memory;
  return tensor;
}

ValuePtr Value(std::vector<ValueTensor> tensors) {
  auto value = std::make_shared<RemoteValue>();
  value->tensors = std::move(tensors);
  return value;
}

std::string BytesOf(const ValueTensor& tensor) {
  std::string bytes(tensor.bytes.size(), '\0');
  tensor.bytes.CopyTo(reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

void ExpectSame(const ValuePtr& a, const ValuePtr& b) {
  ASSERT_EQ(a == nullptr, b == nullptr);
  if (a == nullptr) return;
  ASSERT_EQ(a->tensors.size(), b->tensors.size());
  for (size_t i = 0; i < a->tensors.size(); ++i) {
    EXPECT_EQ(a->tensors[i].dtype, b->tensors[i].dtype);
    EXPECT_EQ(a->tensors[i].shape, b->tensors[i].shape);
    EXPECT_TRUE(BytesOf(a->tensors[i]) == BytesOf(b->tensors[i]));
  }
}

// Three arguments: a large value, none, and one of an empty tensor and a scalar.
OutgoingCall Call() {
  OutgoingCall call;
  call.head.set_function("f");
  call.head.mutable_number()->set_number(7);
  for (int i = 0; i < 3; ++i) call.head.add_arguments()->set_owner_address("here:1");
  call.ahead = {Value({Tensor({100, 50}, 5000, 1)}), nullptr,
                Value({Tensor({0, 3}, 0, 2), Tensor({}, 1, 3)})};
  return call;
}

TEST(ValueWireTest, ACallComesAsItWasSent) {
  const OutgoingCall sent = Call();
  const auto came = DecodeCall(EncodeCall(sent));
  ASSERT_TRUE(came.ok()) << came.status();
  EXPECT_EQ(came->head.function(), "f");
  EXPECT_EQ(came->head.number().number(), 7u);
  ASSERT_EQ(came->ahead.size(), 3u);
  for (size_t i = 0; i < 3; ++i) ExpectSame(sent.ahead[i], came->ahead[i]);
}

TEST(ValueWireTest, ProtobufReadsWhatIsSent) {
  RemoteCallRequest message;
  ASSERT_TRUE(message.ParseFromString(Flat(EncodeCall(Call()))));
  ASSERT_EQ(message.arguments_size(), 3);
  EXPECT_TRUE(message.arguments(0).has_ahead());
  EXPECT_FALSE(message.arguments(1).has_ahead());
  ASSERT_EQ(message.data_size(), 3);
  EXPECT_EQ(message.data(0).data(), BytesOf(Call().ahead[0]->tensors[0]));
  EXPECT_EQ(message.data(1).data(), "");
  EXPECT_EQ(message.data(2).slice(), 2u);
}

TEST(ValueWireTest, AValueAndAnErrorComeAsTheyWereSent) {
  const ValuePtr value = Value({Tensor({3000}, 3000, 4), Tensor({2, 2}, 4, 5)});
  const auto came = DecodeFetched(EncodeFetched({value}));
  ASSERT_TRUE(came.ok() && came->value.ok());
  ExpectSame(value, *came->value);
  FetchReply message;
  ASSERT_TRUE(message.ParseFromString(Flat(EncodeFetched({value}))));
  EXPECT_EQ(message.data(1).data(), BytesOf(value->tensors[1]));

  const absl::Status error = absl::InternalError("out of coffee");
  const auto failed = DecodeFetched(EncodeFetched({error}));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->value.status(), error);
}

TEST(ValueWireTest, AValueLargerThanAMessageIsAnErrorThatSaysSo) {
  const ValuePtr large = Value({Tensor({16 << 20}, 16 << 20, 6)});
  const auto came = DecodeFetched(EncodeFetched({large}));
  ASSERT_TRUE(came.ok());
  EXPECT_EQ(came->value.status().code(), absl::StatusCode::kResourceExhausted);
  OutgoingCall call = Call();
  call.ahead[1] = large;  // stays where it is
  const auto sent = DecodeCall(EncodeCall(call));
  ASSERT_TRUE(sent.ok());
  EXPECT_EQ(sent->ahead[1], nullptr);
  ExpectSame(sent->ahead[2], call.ahead[2]);
}

TEST(ValueWireTest, TensorsThatDoNotFitTheirShapesAreRefused) {
  RemoteCallRequest good;
  ASSERT_TRUE(good.ParseFromString(Flat(EncodeCall(Call()))));
  const auto refused = [&](const std::function<void(RemoteCallRequest&)>& change) {
    RemoteCallRequest changed = good;
    change(changed);
    return DecodeCall(Buffer(changed.SerializeAsString())).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](RemoteCallRequest&) {}));
  const auto tensor = [](RemoteCallRequest& call) {
    return call.mutable_arguments(0)->mutable_ahead()->mutable_tensors(0);
  };
  EXPECT_TRUE(refused([&](auto& call) { tensor(call)->set_shape(0, 101); }));
  EXPECT_TRUE(refused([&](auto& call) { tensor(call)->set_shape(0, -100); }));
  EXPECT_TRUE(refused([&](auto& call) {
    tensor(call)->set_shape(0, int64_t{1} << 62);
    tensor(call)->set_shape(1, int64_t{1} << 62);
  }));
  EXPECT_TRUE(refused([&](auto& call) { tensor(call)->set_dtype(F64); }));
  EXPECT_TRUE(refused([&](auto& call) { tensor(call)->set_dtype(DATA_TYPE_UNSPECIFIED); }));
  EXPECT_TRUE(refused([&](auto& call) { call.mutable_data(0)->mutable_data()->pop_back(); }));
  EXPECT_TRUE(refused([&](auto& call) { call.mutable_data()->RemoveLast(); }));
  EXPECT_TRUE(refused([&](auto& call) { call.add_data(); }));
}

TEST(ValueWireTest, NoBytesEndTheProcess) {
  const std::string call = Flat(EncodeCall(Call()));
  const std::string value = Flat(EncodeFetched({Value({Tensor({10}, 10, 8)})}));
  std::mt19937 random(9);
  for (int turn = 0; turn < 3000; ++turn) {
    for (std::string bytes : {call.substr(0, 300), call, value}) {
      for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
      bytes.resize(random() % (bytes.size() + 1));
      (void)DecodeCall(Buffer(bytes));
      (void)DecodeFetched(Buffer(bytes));
    }
  }
}

}  // namespace
}  // namespace parley
