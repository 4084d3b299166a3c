// Properties of the shards' core in bounded and async under random interleavings: requests come
// twice, late or out of order, answers are lost, contributors leave and are replaced while views
// reach everybody at another time. The seed is printed with each failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/clocked_fixture.h"

namespace parley::testing {
namespace {

using Random = std::mt19937_64;

constexpr uint64_t kEpochs = 3;
constexpr int kChanges = 12;

JobConfig Job(std::optional<uint32_t> bound, uint32_t workers) {
  return bound.has_value() ? BoundedJob(*bound, workers, kEpochs) : AsyncJob(workers, kEpochs);
}

class ClockedStorm {
 public:
  ClockedStorm(uint64_t seed, std::optional<uint32_t> bound)
      : random_(seed),
        bound_(bound),
        workers_count_(1 + static_cast<uint32_t>(Below(4))),
        samples_(2 + Below(60)),
        views_{ClockedView({.tensors = {{"a", 2}, {"b", 3}, {"c", 1}},
                            .shards = 1 + static_cast<uint32_t>(Below(3)),
                            .workers = workers_count_,
                            .placement_seed = seed},
                           samples_)},
        cluster_(Job(bound, workers_count_), views_[0]),
        has_view_(cluster_.size(), 0),
        advances_(cluster_.size()),
        version_(cluster_.size(), 0) {
    for (const Contributor& contributor : views_[0].contributors()) {
      Launch(contributor.part_members(0), contributor.ordinal(), 1);
    }
    for (const Slice& slice : views_[0].slices()) sums_[slice.id()] = 0;
  }

  void Run() {
    for (int event = 0; event < 100'000 && !Done(); ++event) {
      const uint64_t kind = Below(100);
      if (kind < 70) {
        Work(*workers_[Below(workers_.size())]);
      } else if (kind < 85) {
        DeliverAdvance(static_cast<uint32_t>(Below(cluster_.size())));
      } else if (kind < 90) {
        Replay();
      } else if (kind < 96) {
        DeliverView(static_cast<uint32_t>(Below(cluster_.size())));
      } else if (kind < 97) {
        ChangeMembers();
      }
      if (::testing::Test::HasFatalFailure()) return;
      CollectAdvances();
      RememberNamedVersions();
    }
    ASSERT_TRUE(Done()) << "no end; floor " << cluster_.leader().clock_gate()->floor();
    CheckEnd();
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      Replies replies;
      cluster_.shard(shard).Stop(replies);
    }
  }

  std::map<std::string, int> seen;
  int lead = 0;  // how far a pull was ahead of what it had to see

 private:
  struct Worker {
    uint64_t member = 0;
    uint32_t ordinal = 0;
    uint32_t attempt = 0;
    size_t view = 0;    // the newest that it has
    bool gone = false;  // in no view any more; it may not know yet
    bool over = false;  // knows that it is fenced, or that the job is done
    ShardCluster::EnterResult enter;
    std::optional<Lease> lease;
    std::map<uint32_t, ShardCluster::PullResult> pulls;  // by slice
    std::map<uint32_t, uint64_t> updates;                // pulled
    std::set<uint32_t> to_push;
    bool pulled = false;
    ShardCluster::CompleteResult complete;
  };
  using PushName = std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>;  // slice ... clock

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Chance(uint64_t percent) { return Below(100) < percent; }

  void Launch(uint64_t member, uint32_t ordinal, uint32_t attempt) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.member = member;
    worker.ordinal = ordinal;
    worker.attempt = attempt;
    worker.view = views_.size() - 1;
  }

  CallHeader Header(const Worker& worker) const {
    return HeaderOf(views_[worker.view], worker.member);
  }
  uint32_t ShardOf(uint32_t slice) const {
    return views_[0].slices(static_cast<int>(slice)).shard();
  }

  // Whether the call has to be made again. Aborted: the worker is fenced.
  bool Again(Worker& worker, const absl::Status& status) {
    if (absl::IsAborted(status)) {
      EXPECT_TRUE(worker.gone) << status;
      worker.over = true;
      return false;
    }
    const bool again = absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
    EXPECT_TRUE(again) << status;
    return again;
  }

  void Work(Worker& worker) {
    if (worker.over) return;
    if (!worker.gone && Chance(10)) worker.view = views_.size() - 1;
    if (!worker.lease.has_value()) return DoEnter(worker);
    if (!worker.pulled) return DoPull(worker);
    if (worker.lease->clock() == 0) {
      worker.over = true;
      return;
    }
    if (!worker.to_push.empty()) return DoPush(worker);
    DoComplete(worker);
  }

  void DoEnter(Worker& worker) {
    if (worker.enter == nullptr || Chance(3)) {
      worker.enter = cluster_.Enter(Header(worker), worker.ordinal);
    }
    if (!worker.enter->has_value()) return;
    const absl::StatusOr<EnterReply> reply = **worker.enter;
    worker.enter = nullptr;
    if (!reply.ok()) {
      Again(worker, reply.status());
      return;
    }
    EXPECT_EQ(reply->attempt(), worker.attempt);
    Begin(worker, reply->lease());
  }

  void Begin(Worker& worker, const Lease& lease) {
    worker.lease = lease;
    worker.pulled = false;
    worker.pulls.clear();
    worker.to_push.clear();
    if (lease.ranges().empty()) return;
    for (const Slice& slice : views_[0].slices()) worker.to_push.insert(slice.id());
  }

  void DoPull(Worker& worker) {
    const Lease lease = *worker.lease;
    bool all = true;
    for (const Slice& slice : views_[0].slices()) {
      ShardCluster::PullResult& result = worker.pulls[slice.id()];
      if (result == nullptr || (!result->has_value() && Chance(3))) {
        PullRequest request;
        *request.mutable_header() = Header(worker);
        request.set_version(lease.version());
        request.set_clock(lease.clock());
        request.set_contributor(worker.ordinal);
        request.set_named(lease.has_version());
        request.add_slices(slice.id());
        result = std::make_shared<std::optional<absl::StatusOr<PulledVersion>>>();
        Replies replies;
        // Checked in the moment of the answer: what comes later must not help.
        cluster_.shard(slice.shard())
            .Pull(request, {cluster_.now(), cluster_.now() + absl::Hours(1)}, replies,
                  [this, result, lease, id = slice.id(),
                   reader = &worker](absl::StatusOr<PulledVersion> reply) {
                    if (reply.ok()) CheckBound(*reader, lease, id, *reply);
                    *result = std::move(reply);
                  });
      }
      if (!result->has_value()) {
        all = false;
        ++seen["pull waits"];
        continue;
      }
      if (!(*result)->ok()) {
        all = false;
        if (!Again(worker, (*result)->status())) return;
        result = nullptr;
        continue;
      }
      worker.updates[slice.id()] = (**result)->slices[0].updates;
    }
    if (all) worker.pulled = true;
  }

  // What the reader must see is in what it was given: named versions must be those of the barrier,
  // and the newest values those of all pushes of clocks that are far enough behind.
  void CheckBound(const Worker& reader, const Lease& lease, uint32_t slice,
                  const PulledVersion& pulled) {
    const float value = pulled.slices[0].values->as<float>()[0];
    if (lease.has_version()) {
      const auto named = named_.find({ShardOf(slice), lease.version()});
      ASSERT_TRUE(named != named_.end());
      ASSERT_EQ(value, -named->second.at(slice));
      ++seen["named version read"];
      return;
    }
    if (!bound_.has_value() || reader.gone) return;
    const uint64_t clock = lease.clock();
    for (const auto& other : workers_) {
      if (other->gone || other->over || !other->lease.has_value() || other->lease->clock() == 0) {
        continue;
      }
      // The clocks that it has begun and that the reader must see.
      for (const uint64_t begun : clocks_[{other->ordinal, other->attempt}]) {
        if (begun + *bound_ + 1 > clock) continue;
        ASSERT_TRUE(added_.count({slice, other->ordinal, other->attempt, begun}) != 0)
            << "clock " << clock << " of contributor " << reader.ordinal << " misses clock "
            << begun << " of contributor " << other->ordinal;
      }
    }
    for (const ClockGate::AtWork& other : cluster_.leader().clock_gate()->at_work()) {
      lead = std::max(lead, static_cast<int>(clock) - 1 - static_cast<int>(other.completed));
    }
  }

  void DoPush(Worker& worker) {
    auto slice = worker.to_push.begin();
    std::advance(slice, static_cast<std::ptrdiff_t>(Below(worker.to_push.size())));
    const float value = static_cast<float>(1 + Below(8));
    const Slice& placed = views_[0].slices(static_cast<int>(*slice));
    const PushRequest request =
        PushOf(Header(worker), worker.ordinal, worker.attempt, worker.lease->clock(), *slice,
               Floats(placed.end() - placed.begin(), value), worker.updates[*slice]);
    clocks_[{worker.ordinal, worker.attempt}].insert(worker.lease->clock());
    const absl::StatusOr<PushReply> reply = Send(request);
    if (Chance(20)) sent_.push_back(request);
    if (!reply.ok()) {
      Again(worker, reply.status());
      return;
    }
    if (Chance(15)) {
      ++seen["push repeated"];
      return;  // the answer was lost
    }
    EXPECT_NE(reply->outcomes(0), STALE);
    worker.to_push.erase(slice);
  }

  absl::StatusOr<PushReply> Send(const PushRequest& request) {
    absl::StatusOr<PushReply> reply = cluster_.Push(request);
    if (!reply.ok()) return reply;
    const uint32_t slice = request.slices(0).slice();
    if (reply->outcomes(0) == ADDED) {
      const bool is_new =
          added_.insert({slice, request.contributor(), request.attempt(), request.step()}).second;
      EXPECT_TRUE(is_new) << "added twice";
      sums_[slice] += FloatsOf(request.slices(0).data())[0];
    }
    return reply;
  }

  void Replay() {
    if (sent_.empty()) return;
    const absl::StatusOr<PushReply> reply = Send(sent_[Below(sent_.size())]);
    if (reply.ok() && reply->outcomes(0) == DUPLICATE) ++seen["duplicate"];
    if (absl::IsAborted(reply.status())) ++seen["fenced"];
  }

  void DoComplete(Worker& worker) {
    if (worker.complete == nullptr || (!worker.complete->has_value() && Chance(5))) {
      worker.complete = cluster_.Complete(
          CompletionOf(Header(worker), worker.ordinal, worker.attempt, *worker.lease));
    }
    if (!worker.complete->has_value()) return;
    const absl::StatusOr<CompleteReply> reply = **worker.complete;
    worker.complete = nullptr;
    if (!reply.ok()) {
      Again(worker, reply.status());
      return;
    }
    if (Chance(10)) {
      ++seen["complete repeated"];
      return;  // the answer was lost
    }
    ASSERT_TRUE(reply->has_lease());
    Begin(worker, reply->lease());
  }

  void CollectAdvances() {
    for (ToShard& message : cluster_.leader().TakeOutbox()) {
      std::deque<AdvanceRequest>& queue = advances_[message.shard];
      if (queue.size() > 1) {
        queue.pop_back();
        ++seen["advance replaced"];
      }
      queue.push_back(std::get<AdvanceRequest>(message.request));
    }
  }

  void DeliverAdvance(uint32_t shard) {
    if (advances_[shard].empty()) return;
    const AdvanceRequest request = advances_[shard].front();
    Replies replies;
    const auto reply = cluster_.shard(shard).Advance(request, cluster_.now(), replies);
    if (!reply.ok()) {
      ASSERT_TRUE(absl::IsFailedPrecondition(reply.status())) << reply.status();
      ++seen["advance before its view"];
      return;
    }
    RememberNamedVersions();  // before anybody can push again
    if (Chance(20)) return;   // the answer was lost
    advances_[shard].pop_front();
    cluster_.leader().OnAdvanceReply(shard, request, cluster_.now(), replies);
  }

  void RememberNamedVersions() {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      const uint64_t version = cluster_.shard(shard).version();
      if (version == version_[shard]) continue;
      version_[shard] = version;
      std::map<uint32_t, float>& values = named_[{shard, version}];
      for (const auto& [slice, sum] : sums_) values[slice] = sum;
      ++seen["barrier"];
    }
  }

  void DeliverView(uint32_t shard) {
    if (has_view_[shard] + 1 >= views_.size()) return;
    // Perhaps not the next one: Watch tells the newest only.
    has_view_[shard] += 1 + Below(views_.size() - has_view_[shard] - 1);
    const ClusterView& view = views_[has_view_[shard]];
    if (shard == 0) CountCuts(view);
    cluster_.SetViewOf(shard, view);
  }

  // The leases that the leader takes back with this view.
  void CountCuts(const ClusterView& view) {
    const ClockGate& gate = *cluster_.leader().clock_gate();
    for (uint32_t ordinal = 0; ordinal < workers_count_; ++ordinal) {
      const Lease* const lease = gate.LeaseOf(ordinal);
      if (lease == nullptr || lease->ranges().empty()) continue;
      const uint32_t attempt = gate.AttemptOf(ordinal);
      const bool stays = std::any_of(view.contributors().begin(), view.contributors().end(),
                                     [&](const Contributor& one) {
                                       return one.ordinal() == ordinal && one.attempt() == attempt;
                                     });
      bool pushed = false;
      for (const auto& [slice, sum] : sums_) {
        pushed |= added_.count({slice, ordinal, attempt, lease->clock()}) != 0;
      }
      if (stays) continue;
      expected_cuts_ += pushed || cluster_.size() > 1;
      seen["cut"] += pushed;
    }
  }

  void ChangeMembers() {
    if (changes_ >= kChanges) return;
    ++changes_;
    const ClusterView& newest = views_.back();
    const uint32_t ordinal = static_cast<uint32_t>(Below(workers_count_));
    const auto has = [&] {
      for (const Contributor& one : newest.contributors()) {
        if (one.ordinal() == ordinal) return true;
      }
      return false;
    };
    for (const auto& worker : workers_) {
      if (worker->ordinal == ordinal) worker->gone = true;
    }
    if (has() && newest.contributors_size() > 1 && Chance(50)) {
      views_.push_back(Without(newest, ordinal));
      ++seen["left"];
      return;
    }
    const uint64_t member = 201 + views_.size();
    views_.push_back(WithAttemptAt(newest, ordinal, member));
    Launch(member, ordinal, static_cast<uint32_t>(views_.back().view_epoch()));
    ++seen["came"];
  }

  bool Done() const {
    for (const auto& worker : workers_) {
      if (!worker->gone && !worker->over) return false;
    }
    for (const auto& queue : advances_) {
      if (!queue.empty()) return false;
    }
    return cluster_.size() > 0 && has_view_[0] + 1 == views_.size();
  }

  void CheckEnd() {
    // Values are the log of what was applied.
    for (const Slice& slice : views_[0].slices()) {
      const auto& table = cluster_.shard(slice.shard());
      PullRequest request;
      *request.mutable_header() = HeaderOf(views_.back(), 101);
      request.mutable_header()->set_view_epoch(views_[has_view_[slice.shard()]].view_epoch());
      request.set_version(table.version());
      request.add_slices(slice.id());
      const auto result = PullFor(cluster_, request, slice.shard());
      ASSERT_TRUE(result->has_value() && (*result)->ok());
      EXPECT_EQ((**result)->slices[0].values->as<float>()[0],
                -named_.at({slice.shard(), table.version()}).at(slice.id()));
    }
    // Every sample of every data epoch is in exactly one verdict.
    std::map<uint64_t, std::vector<int>> used;
    uint64_t step = 0;
    for (const Verdict& verdict : cluster_.reported()) {
      ASSERT_EQ(verdict.step(), ++step);
      ASSERT_EQ(verdict.shares_size(), 1);
      std::vector<int>& times = used[verdict.data_epoch()];
      times.resize(samples_, 0);
      for (const SampleRange& range : verdict.shares(0).ranges()) {
        for (uint64_t i = range.begin(); i < range.end(); ++i) ++times[i];
      }
    }
    ASSERT_EQ(used.size(), kEpochs);
    for (const auto& [epoch, times] : used) {
      for (const int time : times) ASSERT_EQ(time, 1) << "data epoch " << epoch;
    }
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      EXPECT_EQ(cluster_.shard(shard).version(), step);
    }
    EXPECT_EQ(cluster_.leader().counts().ranges_cut, expected_cuts_);
  }

  Random random_;
  const std::optional<uint32_t> bound_;
  const uint32_t workers_count_;
  const uint64_t samples_;
  std::vector<ClusterView> views_;
  ShardCluster cluster_;
  std::vector<size_t> has_view_;  // by shard, index into views_
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::deque<AdvanceRequest>> advances_;  // by shard; the first is on its way
  std::vector<uint64_t> version_;                     // by shard
  std::vector<PushRequest> sent_;                     // some, to be sent again
  std::set<PushName> added_;                          // slice, contributor, attempt, clock
  std::map<uint32_t, float> sums_;                    // by slice, of what was added
  std::map<std::pair<uint32_t, uint64_t>, std::map<uint32_t, float>> named_;  // shard, version
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint64_t>> clocks_;        // begun
  uint64_t expected_cuts_ = 0;
  int changes_ = 0;
};

void RunStorms(std::optional<uint32_t> bound) {
  std::map<std::string, int> seen;
  int lead = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ClockedStorm storm(seed, bound);
    storm.Run();
    if (::testing::Test::HasFailure()) return;
    for (const auto& [what, times] : storm.seen) seen[what] += times;
    lead = std::max(lead, storm.lead);
  }
  for (const char* what :
       {"duplicate", "fenced", "push repeated", "complete repeated", "barrier", "cut", "left",
        "came", "named version read", "advance before its view"}) {
    EXPECT_GT(seen[what], 20) << what;
  }
  if (!bound.has_value()) return;
  EXPECT_GT(seen["pull waits"], 100);
  EXPECT_GT(seen["advance replaced"], 10);
  // At most so far ahead as the bound lets it be, and so far at times.
  EXPECT_EQ(lead, static_cast<int>(*bound)) << "clocks ahead of another one at work";
}

TEST(ClockedPropertyTest, WithBound0NobodyIsAhead) { RunStorms(0); }

TEST(ClockedPropertyTest, WithBound2SomebodyIsSometimes2ClocksAheadAndNeverMore) { RunStorms(2); }

TEST(ClockedPropertyTest, InAsyncNothingIsLostOrDoubledEither) { RunStorms(std::nullopt); }

}  // namespace
}  // namespace parley::testing
