#include "common/tensor_slice.h"

#include <cstring>
#include <string>

namespace parley {

void TensorBytes::CopyTo(std::byte* out) const {
  for (const Piece piece : pieces_) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
}

TensorBytes TensorBytes::Part(size_t begin, size_t size) const {
  TensorBytes part;
  for (const Piece piece : pieces_) {
    if (begin >= piece.size()) {
      begin -= piece.size();
      continue;
    }
    part.Append(piece.subspan(begin, size - part.size()));
    begin = 0;
    if (part.size() == size) break;
  }
  return part;
}

void CopyTo(const TensorSlice& slice, SliceData& message) {
  message.set_slice(slice.slice);
  message.set_dtype(slice.dtype);
  if (slice.packed) message.set_nonzero(slice.nonzero);
  std::string& data = *message.mutable_data();
  data.resize(slice.bytes.size());
  slice.bytes.CopyTo(reinterpret_cast<std::byte*>(data.data()));
}

}  // namespace parley
