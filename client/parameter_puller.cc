#include "client/parameter_puller.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

absl::Status ParameterPuller::Pull(uint64_t version, const Wait& wait) {
  auto progress = std::make_shared<Progress>();
  progress->version = version;
  progress->next.assign(layout_.by_shard().size(), 0);
  for (size_t shard = 0; shard < layout_.by_shard().size(); ++shard) {
    for (size_t call = 0; call < calls_per_shard_; ++call) AskNext(shard, progress);
  }
  const absl::Status waited =
      wait([&progress] { return progress->open == 0 || !progress->error.ok(); });
  progress->abandoned = true;
  return waited.ok() ? progress->error : waited;
}

void ParameterPuller::AskNext(size_t shard, const std::shared_ptr<Progress>& progress) {
  const std::vector<PlacedSlice>& slices = layout_.by_shard()[shard];
  size_t& next = progress->next[shard];
  if (next == slices.size()) return;
  std::vector<PlacedSlice> asked;
  auto request = std::make_shared<PullRequest>();
  request->set_version(progress->version);
  for (size_t bytes = 0; next < slices.size() && bytes < group_bytes_; ++next) {
    bytes += slices[next].bytes;
    request->add_slices(slices[next].slice);
    asked.push_back(slices[next]);
  }
  ++progress->open;
  calls_.Pull(static_cast<uint32_t>(shard), std::move(request),
              [this, shard, progress, asked](const absl::StatusOr<PullReply>& reply) {
                if (progress->abandoned) return;
                --progress->open;
                const absl::Status taken =
                    reply.ok() ? Take(asked, progress->version, *reply) : reply.status();
                if (progress->error.ok()) progress->error = taken;
                if (taken.ok()) AskNext(shard, progress);
              });
}

absl::Status ParameterPuller::Take(const std::vector<PlacedSlice>& asked, uint64_t version,
                                   const PullReply& reply) {
  const auto misfit = [&](const std::string& what) {
    return absl::InternalError(absl::StrCat(
        "shard ", asked.front().shard, " answered a pull of version ", version, " with ", what));
  };
  if (reply.version() != version) return misfit(absl::StrCat("version ", reply.version()));
  if (static_cast<size_t>(reply.slices_size()) != asked.size()) {
    return misfit(absl::StrCat(reply.slices_size(), " slices instead of ", asked.size()));
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const SliceData& slice = reply.slices(i);
    if (slice.slice() != asked[i].slice || slice.dtype() != tensors_[asked[i].tensor].dtype() ||
        slice.data().size() != asked[i].bytes) {
      return misfit(absl::StrCat("another slice than ", asked[i].slice));
    }
    std::memcpy(parameters_.tensor(asked[i].tensor).data() + asked[i].begin, slice.data().data(),
                asked[i].bytes);
    pulled_bytes_ += asked[i].bytes;
  }
  return absl::OkStatus();
}

}  // namespace parley
