#include "common/rpc/tensor_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// Bytes below this are copied: a slice of its own costs gRPC more.
constexpr size_t kSmall = 4096;

void AppendVarint(uint64_t value, std::string& out) {
  uint8_t bytes[10];
  const uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes), end - bytes);
}

void AppendVarintField(int field, uint64_t value, std::string& out) {
  if (value == 0) return;  // proto3 leaves defaults out
  AppendVarint(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT), out);
  AppendVarint(value, out);
}

void AppendLength(int field, uint64_t bytes, std::string& out) {
  AppendVarint(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), out);
  AppendVarint(bytes, out);
}

void Release(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice Borrow(TensorBytes::Piece piece, const std::shared_ptr<const void>& owner) {
  void* const bytes = const_cast<std::byte*>(piece.data());  // gRPC only reads it
  return grpc::Slice(bytes, piece.size(), &Release, new std::shared_ptr<const void>(owner));
}

// The next tag; 0 at the end, or where there is none. Protobuf's own parser takes at most 5 bytes
// for one, this stream 10.
uint32_t ReadTag(CodedInputStream& in) {
  const int begin = in.CurrentPosition();
  const uint32_t tag = in.ReadTag();
  return in.CurrentPosition() - begin > 5 ? 0 : tag;
}

// A length; false where there is none. Here too protobuf's own parser takes at most 5 bytes.
bool ReadLength(CodedInputStream& in, int& length) {
  const int begin = in.CurrentPosition();
  return in.ReadVarintSizeAsInt(&length) && in.CurrentPosition() - begin <= 5;
}

// Skips a field, or copies it to `rest`. Of a length above 32 bits protobuf's own function
// (WireFormatLite::SkipField) takes the lower ones, where its parser refuses the message.
bool SkipField(CodedInputStream& in, uint32_t tag, CodedOutputStream* rest) {
  if (WireFormatLite::GetTagFieldNumber(tag) == 0) return false;
  switch (WireFormatLite::GetTagWireType(tag)) {
    case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
      int size = 0;
      if (!ReadLength(in, size)) return false;
      if (rest == nullptr) return in.Skip(size);
      std::string bytes;
      if (!in.ReadString(&bytes, size)) return false;
      rest->WriteTag(tag);
      rest->WriteVarint32(static_cast<uint32_t>(size));
      rest->WriteString(bytes);
      return true;
    }
    case WireFormatLite::WIRETYPE_START_GROUP: {
      if (!in.IncrementRecursionDepth()) return false;
      if (rest != nullptr) rest->WriteTag(tag);
      const uint32_t end = WireFormatLite::MakeTag(WireFormatLite::GetTagFieldNumber(tag),
                                                   WireFormatLite::WIRETYPE_END_GROUP);
      uint32_t inner = ReadTag(in);
      for (; inner != end; inner = ReadTag(in)) {
        if (inner == 0 || !SkipField(in, inner, rest)) return false;
      }
      if (rest != nullptr) rest->WriteTag(end);
      in.DecrementRecursionDepth();
      return true;
    }
    case WireFormatLite::WIRETYPE_END_GROUP:
      return false;
    default:
      return rest == nullptr ? WireFormatLite::SkipField(&in, tag)
                             : WireFormatLite::SkipField(&in, tag, rest);
  }
}

// The next `size` bytes of the stream, as they lie.
bool View(CodedInputStream& in, size_t size, TensorBytes& bytes) {
  bytes.Clear();
  while (bytes.size() < size) {
    const void* data = nullptr;
    int there = 0;
    if (!in.GetDirectBufferPointer(&data, &there)) return false;
    const size_t take = std::min(size - bytes.size(), static_cast<size_t>(there));
    bytes.Append({static_cast<const std::byte*>(data), take});
    if (!in.Skip(static_cast<int>(take))) return false;
  }
  return true;
}

bool ReadSlice(CodedInputStream& in, TensorSlice& slice) {
  while (const uint32_t tag = ReadTag(in)) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (field == SliceData::kSliceFieldNumber && type == WireFormatLite::WIRETYPE_VARINT) {
      if (!in.ReadVarint32(&slice.slice)) return false;
    } else if (field == SliceData::kDtypeFieldNumber && type == WireFormatLite::WIRETYPE_VARINT) {
      uint64_t dtype = 0;
      if (!in.ReadVarint64(&dtype)) return false;
      slice.dtype = static_cast<DataType>(static_cast<int32_t>(dtype));
    } else if (field == SliceData::kNonzeroFieldNumber &&
               type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      // Not by ReadString, which makes room for what a length says before it has come.
      int size = 0;
      TensorBytes nonzero;
      if (!ReadLength(in, size) || size > in.BytesUntilLimit() ||
          !View(in, static_cast<size_t>(size), nonzero)) {
        return false;
      }
      slice.nonzero.resize(nonzero.size());
      nonzero.CopyTo(reinterpret_cast<std::byte*>(slice.nonzero.data()));
      slice.packed = size > 0;
    } else if (field == SliceData::kDataFieldNumber &&
               type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      int size = 0;
      if (!ReadLength(in, size) || size > in.BytesUntilLimit() ||
          !View(in, static_cast<size_t>(size), slice.bytes)) {
        return false;
      }
    } else if (!SkipField(in, tag, nullptr)) {
      return false;
    }
  }
  // A limit that lies beyond the end of all bytes is not noticed by itself.
  return in.ConsumedEntireMessage() && in.BytesUntilLimit() == 0;
}

bool Decode(CodedInputStream& in, uint32_t slices_field, std::string& head,
            std::vector<TensorSlice>& slices) {
  const uint32_t slices_tag = WireFormatLite::MakeTag(static_cast<int>(slices_field),
                                                      WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  StringOutputStream stream(&head);
  CodedOutputStream rest(&stream);
  while (const uint32_t tag = ReadTag(in)) {
    if (tag != slices_tag) {
      if (!SkipField(in, tag, &rest)) return false;
      continue;
    }
    int size = 0;
    if (!ReadLength(in, size) || !in.IncrementRecursionDepth()) return false;
    const auto outer = in.PushLimit(size);
    slices.emplace_back();
    if (!ReadSlice(in, slices.back())) return false;
    in.PopLimit(outer);
    in.DecrementRecursionDepth();
  }
  return in.ConsumedEntireMessage();
}

}  // namespace

grpc::ByteBuffer EncodeTensors(const google::protobuf::MessageLite& head, uint32_t slices_field,
                               absl::Span<const TensorSlice> slices) {
  std::vector<grpc::Slice> parts;
  std::string bytes = head.SerializeAsString();  // since the last borrowed part
  for (const TensorSlice& slice : slices) {
    const size_t size = slice.bytes.size();
    std::string fields;
    AppendVarintField(SliceData::kSliceFieldNumber, slice.slice, fields);
    AppendVarintField(SliceData::kDtypeFieldNumber, static_cast<uint64_t>(slice.dtype), fields);
    if (slice.packed) {
      AppendLength(SliceData::kNonzeroFieldNumber, slice.nonzero.size(), fields);
      fields += slice.nonzero;
    }
    if (size != 0) AppendLength(SliceData::kDataFieldNumber, size, fields);
    AppendLength(static_cast<int>(slices_field), fields.size() + size, bytes);
    bytes += fields;
    for (const TensorBytes::Piece piece : slice.bytes.pieces()) {
      if (slice.owner == nullptr || piece.size() < kSmall) {
        bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        continue;
      }
      if (!bytes.empty()) parts.emplace_back(bytes);
      bytes.clear();
      parts.push_back(Borrow(piece, slice.owner));
    }
  }
  if (!bytes.empty() || parts.empty()) parts.emplace_back(bytes);
  return grpc::ByteBuffer(parts.data(), parts.size());
}

absl::Status DecodeTensors(const grpc::ByteBuffer& bytes, uint32_t slices_field,
                           google::protobuf::MessageLite& head, std::vector<TensorSlice>& slices) {
  const auto refused = [&] {
    slices.clear();
    return absl::InvalidArgumentError(absl::StrCat("these bytes are no ", head.GetTypeName()));
  };
  slices.clear();
  if (!bytes.Valid()) {
    head.Clear();
    return absl::OkStatus();
  }
  // It reads only. Not of a copy: short pieces lie in the buffer itself.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&bytes));
  if (!reader.status().ok()) return refused();
  std::string head_bytes;
  {
    CodedInputStream in(&reader);
    if (!Decode(in, slices_field, head_bytes, slices)) return refused();
  }
  if (!head.ParseFromString(head_bytes)) return refused();
  return absl::OkStatus();
}

}  // namespace parley
