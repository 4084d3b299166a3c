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

void CopyTo(const TensorSlice& slice, SliceData& message) {
  message.set_slice(slice.slice);
  message.set_dtype(slice.dtype);
  std::string& data = *message.mutable_data();
  data.resize(slice.bytes.size());
  slice.bytes.CopyTo(reinterpret_cast<std::byte*>(data.data()));
}

}  // namespace parley
