#include "client/parameter_puller.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

absl::Status ParameterPuller::Pull(uint64_t version, const Wait& wait) {
  struct Progress {
    size_t open = 0;
    bool abandoned = false;  // Pull has returned: late replies must not touch the arena
    absl::Status error;
  };
  auto progress = std::make_shared<Progress>();
  for (size_t shard = 0; shard < layout_.by_shard().size(); ++shard) {
    const std::vector<PlacedSlice>& slices = layout_.by_shard()[shard];
    for (size_t next = 0; next < slices.size();) {
      std::vector<PlacedSlice> asked;
      auto request = std::make_shared<PullRequest>();
      request->set_version(version);
      for (size_t bytes = 0; next < slices.size() && bytes < group_bytes_; ++next) {
        bytes += slices[next].bytes;
        request->add_slices(slices[next].slice);
        asked.push_back(slices[next]);
      }
      ++progress->open;
      calls_.Pull(shard, std::move(request),
                  [this, progress, version, asked](const absl::StatusOr<PullReply>& reply) {
                    if (progress->abandoned) return;
                    --progress->open;
                    const absl::Status taken =
                        reply.ok() ? Take(asked, version, *reply) : reply.status();
                    if (progress->error.ok()) progress->error = taken;
                  });
    }
  }
  const absl::Status waited =
      wait([&progress] { return progress->open == 0 || !progress->error.ok(); });
  progress->abandoned = true;
  return waited.ok() ? progress->error : waited;
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
