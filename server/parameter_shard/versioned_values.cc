#include "server/parameter_shard/versioned_values.h"

#include <cstring>
#include <utility>

namespace parley {

void VersionedValues::Set(uint64_t version, std::string_view bytes) {
  std::shared_ptr<Buffer> values = pool_->Take(bytes.size());
  if (!bytes.empty()) std::memcpy(values->data(), bytes.data(), bytes.size());
  versions_.clear();
  versions_.push_back({version, version, std::move(values)});
}

PinnedBuffer VersionedValues::PinVersion(uint64_t version) const {
  for (auto it = versions_.rbegin(); it != versions_.rend(); ++it) {
    if (it->first <= version && version <= it->last) return Pin(it->values);
  }
  return nullptr;
}

Buffer& VersionedValues::Update(uint64_t version) {
  Version next{version, version, versions_.back().values};
  Buffer& values = Unshare(next.values, *pool_);
  if (next.values == versions_.back().values) versions_.pop_back();
  versions_.push_back(std::move(next));
  DropUnpinned();
  return values;
}

std::shared_ptr<Buffer> VersionedValues::Put(uint64_t version, std::shared_ptr<Buffer> values) {
  versions_.push_back({version, version, std::move(values)});
  return DropUnpinned();
}

void VersionedValues::Raise(uint64_t version) {
  versions_.back().last = version;
  DropUnpinned();
}

std::shared_ptr<Buffer> VersionedValues::DropUnpinned() {
  std::shared_ptr<Buffer> dropped;
  for (auto it = versions_.begin(); std::next(it) != versions_.end();) {
    if (it->values->pinned()) {
      ++it;
      continue;
    }
    dropped = std::move(it->values);
    it = versions_.erase(it);
  }
  return dropped;
}

Buffer& Unshare(std::shared_ptr<Buffer>& buffer, BufferPool& pool) {
  if (buffer->pinned()) {
    std::shared_ptr<Buffer> copy = pool.Take(buffer->size());
    std::memcpy(copy->data(), buffer->data(), buffer->size());
    pool.CountCopied(buffer->size());
    buffer = std::move(copy);
  } else {
    buffer->Recall();
  }
  return *buffer;
}

}  // namespace parley
