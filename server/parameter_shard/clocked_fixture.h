#ifndef PARLEY_SERVER_PARAMETER_SHARD_CLOCKED_FIXTURE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_CLOCKED_FIXTURE_H_

// For tests of bounded and async: jobs, and contributors that do one thing at a time.

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/job/data_division.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {

// SGD with rate 1, reduction SUM, two samples to a lease.
inline JobConfig BoundedJob(uint32_t bound, uint32_t workers, uint64_t epochs = 1) {
  JobConfig job = MeanJob();
  job.mutable_consistency()->mutable_bounded()->set_bound(bound);
  job.mutable_consistency()->mutable_bounded()->set_reduction(SUM);
  job.mutable_cluster()->set_workers(workers);
  job.mutable_data()->set_batch(2);
  job.set_epochs(epochs);
  return job;
}

inline JobConfig AsyncJob(uint32_t workers, uint64_t epochs = 1) {
  JobConfig job = BoundedJob(0, workers, epochs);
  job.mutable_consistency()->mutable_async()->set_reduction(SUM);
  return job;
}

inline ClusterView ClockedView(ViewOptions options, uint64_t samples) {
  ClusterView view = MakeView(options);
  view.set_training_samples(samples);
  for (Contributor& contributor : *view.mutable_contributors()) contributor.set_attempt(1);
  return view;
}

// The next view with another member in a place.
inline ClusterView WithAttemptAt(const ClusterView& view, uint32_t ordinal, uint64_t member) {
  ClusterView next = WithMemberAt(view, ordinal, member);
  for (Contributor& contributor : *next.mutable_contributors()) {
    if (contributor.ordinal() != ordinal) continue;
    contributor.set_attempt(static_cast<uint32_t>(next.view_epoch()));
  }
  return next;
}

inline CompleteRequest CompletionOf(const CallHeader& header, uint32_t contributor,
                                    uint32_t attempt, const Lease& lease) {
  CompleteRequest request;
  *request.mutable_header() = header;
  request.set_step(lease.clock());
  request.set_attempt(attempt);
  request.set_data_epoch(lease.data_epoch());
  Share& share = *request.mutable_share();
  share.set_contributor(contributor);
  *share.mutable_ranges() = lease.ranges();
  share.set_samples(Count({lease.ranges().begin(), lease.ranges().end()}));
  share.set_weight(1);
  return request;
}

inline PushRequest PushOf(const CallHeader& header, uint32_t contributor, uint32_t attempt,
                          uint64_t clock, uint32_t slice, const Floats& values, uint64_t seen) {
  PushRequest request;
  *request.mutable_header() = header;
  request.set_step(clock);
  request.set_attempt(attempt);
  request.set_contributor(contributor);
  SliceData& data = *request.add_slices();
  data.set_slice(slice);
  data.set_dtype(F32);
  data.set_data(BytesOf(values));
  request.add_seen(seen);
  return request;
}

// The answer appears in *result when it comes.
inline ShardCluster::PullResult PullFor(ShardCluster& cluster, const PullRequest& request,
                                        uint32_t shard, absl::Duration patience = absl::Hours(1)) {
  auto result = std::make_shared<std::optional<absl::StatusOr<PulledVersion>>>();
  Replies replies;
  cluster.shard(shard).Pull(
      request, {cluster.now(), cluster.now() + patience}, replies,
      [result](absl::StatusOr<PulledVersion> reply) { *result = std::move(reply); });
  return result;
}

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_CLOCKED_FIXTURE_H_
