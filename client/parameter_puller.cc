#include "client/parameter_puller.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace parley {

absl::Status ParameterPuller::Pull(const What& what, const Wait& wait) {
  auto progress = std::make_shared<Progress>();
  progress->what = what;
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
  const What& what = progress->what;
  std::vector<PlacedSlice> asked;
  auto request = std::make_shared<PullRequest>();
  request->set_version(what.version);
  request->set_clock(what.clock);
  request->set_contributor(what.contributor);
  request->set_named(what.clock != 0 && !what.newest);
  for (size_t bytes = 0; next < slices.size() && bytes < group_bytes_; ++next) {
    bytes += slices[next].bytes;
    request->add_slices(slices[next].slice);
    asked.push_back(slices[next]);
  }
  ++progress->open;
  calls_.Pull(static_cast<uint32_t>(shard), std::move(request),
              [this, shard, progress, asked](const absl::StatusOr<TensorPull>& reply) {
                if (progress->abandoned) return;
                --progress->open;
                const absl::Status taken =
                    reply.ok() ? Take(asked, progress->what, *reply) : reply.status();
                if (progress->error.ok()) progress->error = taken;
                if (taken.ok()) AskNext(shard, progress);
              });
}

absl::Status ParameterPuller::Take(const std::vector<PlacedSlice>& asked, const What& asked_for,
                                   const TensorPull& pulled) {
  const PullReply& reply = pulled.head;
  const auto misfit = [&](const std::string& what) {
    return absl::InternalError(absl::StrCat("shard ", asked.front().shard,
                                            " answered a pull of version ", asked_for.version,
                                            " with ", what));
  };
  if (!asked_for.newest && reply.version() != asked_for.version)
    return misfit(absl::StrCat("version ", reply.version()));
  if (pulled.slices.size() != asked.size()) {
    return misfit(absl::StrCat(pulled.slices.size(), " slices instead of ", asked.size()));
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const TensorSlice& slice = pulled.slices[i];
    if (slice.slice != asked[i].slice || slice.dtype != tensors_[asked[i].tensor].dtype() ||
        slice.bytes.size() != asked[i].bytes) {
      return misfit(absl::StrCat("another slice than ", asked[i].slice));
    }
    slice.bytes.CopyTo(parameters_.tensor(asked[i].tensor).data() + asked[i].begin);
    if (slice.loan.has_value() && !slice.loan->Stands()) {
      return absl::UnavailableError(absl::StrCat("shard ", asked.front().shard,
                                                 " has written slice ", slice.slice,
                                                 " again before it was read"));
    }
    pulled_bytes_ += asked[i].bytes;
    if (i >= static_cast<size_t>(reply.updates_size())) continue;
    if (updates_.size() <= slice.slice) updates_.resize(slice.slice + 1);
    updates_[slice.slice] = reply.updates(static_cast<int>(i));
  }
  return absl::OkStatus();
}

}  // namespace parley
