#include "server/parameter_shard/checkpoint_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/checkpoint_io.h"

namespace parley::testing {
namespace {

using States = std::vector<std::pair<std::string, std::string>>;

std::string InOneText(const std::string& values, States states, uint64_t optimizer_steps) {
  std::sort(states.begin(), states.end());
  std::string text = absl::StrCat(values, " after ", optimizer_steps);
  for (const auto& [name, bytes] : states) absl::StrAppend(&text, " ", name, " ", bytes);
  return text;
}

std::string BytesAt(const PinnedBuffer& buffer, size_t offset, size_t size) {
  return {reinterpret_cast<const char*>(buffer->data()) + offset, size};
}

}  // namespace

JobConfig MomentumJob() {
  JobConfig job = MeanJob();
  Sgd* sgd = job.mutable_optimizer()->mutable_sgd();
  sgd->set_rate(0.5);
  sgd->set_momentum(0.9);
  return job;
}

ViewOptions CutModel(uint32_t shards, uint64_t placement) {
  return {.tensors = {{"w", kBlockElements + 100}, {"b", 10}, {"n", 1, true, I64}},
          .shards = shards,
          .placement_seed = placement};
}

void Train(ShardCluster& cluster, uint64_t from, uint64_t to) {
  for (uint64_t step = from; step <= to; ++step) {
    for (const Slice& slice : cluster.view().slices()) {
      std::vector<float> gradient;
      for (uint64_t i = slice.begin(); i < slice.end(); ++i) {
        gradient.push_back(static_cast<float>((i * 37 + step * 11) % 101) / 50 - 1);
      }
      PushRequest push = cluster.MakePush(0, step, 0, slice.id(), gradient);
      if (cluster.view().tensors(static_cast<int>(slice.tensor())).buffer()) {
        const int64_t count = static_cast<int64_t>(step);
        push.mutable_slices(0)->set_dtype(I64);
        push.mutable_slices(0)->set_data(&count, sizeof(count));
      }
      ASSERT_EQ(cluster.Push(push).status(), absl::OkStatus());
    }
    cluster.Complete(cluster.MakeComplete(0, step, 0));
    cluster.Deliver();
  }
}

absl::StatusOr<LoadedSlices> LoadShard(FileSystem& files, const std::string& folder,
                                       const ClusterView& view, uint32_t shard) {
  const auto routing = Routing::Make(view, shard);
  if (!routing.ok()) return routing.status();
  LoadedSlices loaded;
  const auto start = [&](uint32_t slice, const SliceStart& start) {
    States states;
    for (const SliceStart::State& state : start.state) {
      states.emplace_back(state.name, std::string(state.bytes));
    }
    loaded[slice] = InOneText(std::string(start.values), states, start.optimizer_steps);
    return absl::OkStatus();
  };
  if (absl::Status status = LoadCheckpoint(files, folder, **routing, start); !status.ok()) {
    return status;
  }
  return loaded;
}

LoadedSlices AsLoaded(const std::vector<SliceSnapshot>& slices) {
  LoadedSlices loaded;
  for (const SliceSnapshot& slice : slices) {
    const size_t size = slice.values->size();
    States states;
    for (const SliceSnapshot::State& state : slice.state) {
      states.emplace_back(state.name, BytesAt(slice.state_buffer, state.offset, size));
    }
    loaded[slice.slice] = InOneText(BytesAt(slice.values, 0, size), states, slice.optimizer_steps);
  }
  return loaded;
}

}  // namespace parley::testing
