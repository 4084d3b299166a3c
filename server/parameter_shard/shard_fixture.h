#ifndef PARLEY_SERVER_PARAMETER_SHARD_SHARD_FIXTURE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_SHARD_FIXTURE_H_

// For tests: views, and shards that pass each other's messages on, without threads or clock.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/parameter_shard.pb.h"
#include "proto/types.pb.h"
#include "server/parameter_shard/shard.h"

namespace parley::testing {

struct TestTensor {
  std::string name;
  uint64_t elements = 0;
  bool buffer = false;
  DataType dtype = F32;
};

struct ViewOptions {
  std::vector<TestTensor> tensors = {{"w", 4}};
  uint32_t shards = 1;
  uint32_t workers = 1;
  uint64_t slice_elements = kBlockElements;  // a multiple of it
  uint64_t placement_seed = 0;               // 0: slices go round
  uint64_t view_epoch = 1;
};

// Worker w has id 1 + w and incarnation 11 + w, shard s 101 + s and 1001 + s. Shard 0 leads.
ClusterView MakeView(const ViewOptions& options);

// The next view: without a worker; with its place kept for a replacement; with a member
// (incarnation 10 + id) in a place, new or not.
ClusterView Without(ClusterView view, uint32_t ordinal);
ClusterView WithNobodyAt(ClusterView view, uint32_t ordinal);
ClusterView WithMemberAt(ClusterView view, uint32_t ordinal, uint64_t member);

// SGD with rate 1, reduction SUM: version v holds the start minus the sums of steps <= v.
JobConfig SummingJob();
// SGD with rate 1 and the weighted mean.
JobConfig MeanJob();

CallHeader HeaderOf(const ClusterView& view, uint64_t member);

using Floats = std::vector<float>;
std::string BytesOf(const Floats& values);
Floats FloatsOf(absl::string_view bytes);

// All shards of a view, started with zeros (or as given), under one virtual clock.
class ShardCluster {
 public:
  // start: with start values, which are zero.
  ShardCluster(const JobConfig& job, const ClusterView& view, bool start = true,
               const ShardResources& resources = {});
  void GiveStartValues();

  Shard& shard(uint32_t ordinal) { return *shards_[ordinal]; }
  Shard& leader() { return *shards_[view_.step_leader()]; }
  size_t size() const { return shards_.size(); }
  const ClusterView& view() const { return view_; }
  CallHeader worker(uint32_t ordinal) const { return HeaderOf(view_, 1 + ordinal); }
  absl::Time now() const { return now_; }
  void Advance(absl::Duration by);

  // A view that all shards get at once.
  void SetView(const ClusterView& view);
  // One shard only; the headers of worker() are of it from now on.
  void SetViewOf(uint32_t shard, const ClusterView& view);

  PushRequest MakePush(uint32_t worker, uint64_t step, uint32_t attempt, uint32_t slice,
                       const std::vector<float>& values) const;
  absl::StatusOr<PushReply> Push(const PushRequest& request);
  // One value for all elements of all trained slices; ADDED is expected.
  void PushAll(uint32_t worker, uint64_t step, uint32_t attempt, float value);

  CompleteRequest MakeComplete(uint32_t worker, uint64_t step, uint32_t attempt,
                               double weight = 1) const;
  // The answer appears in *result when it comes.
  using CompleteResult = std::shared_ptr<std::optional<absl::StatusOr<CompleteReply>>>;
  CompleteResult Complete(const CompleteRequest& request, absl::Duration patience = absl::Hours(1));

  using EnterResult = std::shared_ptr<std::optional<absl::StatusOr<EnterReply>>>;
  EnterResult Enter(const CallHeader& header, uint32_t contributor,
                    absl::Duration patience = absl::Hours(1));

  using PullResult = std::shared_ptr<std::optional<absl::StatusOr<PulledVersion>>>;
  PullResult Pull(uint32_t worker, uint32_t slice, uint64_t version,
                  absl::Duration patience = absl::Hours(1));
  // Of a version that is there: a whole tensor.
  std::vector<float> Values(const std::string& tensor, uint64_t version);

  // Passes messages between shards on until there are none.
  void Deliver();

  // All reported verdicts so far.
  const std::vector<Verdict>& reported();

 private:
  ClusterView view_;
  std::vector<std::unique_ptr<Shard>> shards_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::vector<Verdict> reported_;
};

// Of an answer that must be there: its verdict, its status code. Of a push that must be taken: what
// became of its first slice.
const Verdict& VerdictOf(const ShardCluster::CompleteResult& result);
absl::StatusCode CodeOf(const ShardCluster::CompleteResult& result);
PushOutcome OutcomeOf(const absl::StatusOr<PushReply>& reply);

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_SHARD_FIXTURE_H_
