#include "server/parameter_shard/pull_encoding.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <string>
#include <vector>

namespace parley {
namespace {

using google::protobuf::io::CodedOutputStream;

// Field numbers of proto/parameter_shard.proto and types.proto.
constexpr uint32_t kPullVersion = 1;
constexpr uint32_t kPullSlices = 2;
constexpr uint32_t kPullUpdates = 3;
constexpr uint32_t kSliceId = 1;
constexpr uint32_t kSliceDtype = 2;
constexpr uint32_t kSliceBytes = 15;

// Tensors below this are copied: a slice of its own costs gRPC more.
constexpr size_t kSmall = 4096;

void AppendVarint(uint64_t value, std::string& out) {
  uint8_t bytes[10];
  const uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes), end - bytes);
}

void AppendVarintField(uint32_t field, uint64_t value, std::string& out) {
  if (value == 0) return;  // proto3 leaves defaults out
  AppendVarint(field << 3, out);
  AppendVarint(value, out);
}

void AppendLength(uint32_t field, uint64_t bytes, std::string& out) {
  AppendVarint(field << 3 | 2, out);
  AppendVarint(bytes, out);
}

void Unpin(void* pin) { delete static_cast<PinnedBuffer*>(pin); }

grpc::Slice Borrow(const PinnedBuffer& values) {
  void* const bytes = const_cast<std::byte*>(values->data());  // gRPC only reads it
  return grpc::Slice(bytes, values->size(), &Unpin, new PinnedBuffer(values));
}

}  // namespace

grpc::ByteBuffer EncodePullReply(const PulledVersion& pulled) {
  std::vector<grpc::Slice> slices;
  std::string head;  // since the last borrowed slice
  AppendVarintField(kPullVersion, pulled.version, head);
  for (const PulledVersion::OneSlice& slice : pulled.slices) {
    const size_t size = slice.values->size();
    std::string fields;
    AppendVarintField(kSliceId, slice.slice, fields);
    AppendVarintField(kSliceDtype, slice.dtype, fields);
    if (size != 0) AppendLength(kSliceBytes, size, fields);
    AppendLength(kPullSlices, fields.size() + size, head);
    head += fields;
    if (size < kSmall) {
      head.append(reinterpret_cast<const char*>(slice.values->data()), size);
      continue;
    }
    slices.emplace_back(head);
    head.clear();
    slices.push_back(Borrow(slice.values));
  }
  if (pulled.has_updates && !pulled.slices.empty()) {
    std::string updates;  // packed
    for (const PulledVersion::OneSlice& slice : pulled.slices) {
      AppendVarint(slice.updates, updates);
    }
    AppendLength(kPullUpdates, updates.size(), head);
    head += updates;
  }
  if (!head.empty() || slices.empty()) slices.emplace_back(head);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace parley
