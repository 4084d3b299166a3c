// Properties of the shards' core while members come, go and are waited for, under random
// interleavings; the seed is printed with each failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/data_division.h"
#include "server/parameter_shard/elastic_oracle.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

using Random = std::mt19937_64;

constexpr uint64_t kSteps = 25;
constexpr uint64_t kTestSamples = 10;
constexpr int kChanges = 25;

enum class Kind { kSumAsTheyCome, kDeterministic, kBackup };

// Shards, and workers that enter, contribute, die, go on though they are fenced, and are replaced,
// while views reach everybody at another time and some never. Gradients are integers, another one
// for each member, step and attempt: values tell whose they are made of.
class ElasticStorm {
 public:
  ElasticStorm(uint64_t seed, Kind kind)
      : random_(seed),
        views_{FirstView(random_, seed)},
        job_(Job(random_, kind)),
        cluster_(job_, views_[0]),
        has_view_(cluster_.size(), 0),
        outbox_(cluster_.size()),
        oracle_(job_, cluster_, views_, removed_, seen) {
    for (const Contributor& contributor : views_[0].contributors()) {
      Launch(contributor.part_members(0), contributor.ordinal());
    }
  }

  void Run() {
    for (int event = 0; event < 200'000 && !Done(); ++event) {
      const uint64_t kind = Below(100);
      if (kind < 55) {
        WorkerEvent(*workers_[Below(workers_.size())]);
      } else if (kind < 80) {
        MessageEvent(static_cast<uint32_t>(Below(cluster_.size())));
      } else if (kind < 86) {
        ReplayEvent();
      } else if (kind < 93) {
        ViewEvent(static_cast<uint32_t>(Below(cluster_.size())));
      } else if (kind < 97) {
        LearnView(*workers_[Below(workers_.size())]);
      } else if (kind < 99) {
        ChangeEvent();
      } else {
        cluster_.Advance(absl::Milliseconds(Below(20)));
      }
      if (::testing::Test::HasFatalFailure()) return;
      oracle_.CheckVerdicts();
      oracle_.CheckValues();
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_TRUE(Done()) << "no end: step " << cluster_.leader().version() + 1 << " attempt "
                        << cluster_.leader().attempt() << ", changes " << changes_;
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      Replies replies;
      cluster_.shard(shard).Stop(replies);
    }
    for (const auto& answered : answered_) ASSERT_TRUE(answered()) << "a call is still parked";
  }

  // How much of what it is for has happened.
  std::map<std::string, int> seen;

 private:
  struct Worker {
    uint64_t member = 0;
    uint32_t ordinal = 0;
    size_t view = 0;    // the newest that it has, index into views_
    bool over = false;  // dead, or knows that it is fenced
    bool entered = false;
    uint64_t step = 0;
    uint32_t attempt = 0;
    DataPosition position;
    std::vector<uint32_t> divided_among;
    std::vector<uint32_t> to_push;
    ShardCluster::EnterResult enter;
    ShardCluster::CompleteResult complete;
  };

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

  static JobConfig Job(Random& random, Kind kind) {
    JobConfig job = SummingJob();
    job.mutable_data()->set_batch(kElasticBatch);
    Sync& sync = *job.mutable_consistency()->mutable_sync();
    sync.set_deterministic(kind == Kind::kDeterministic);
    if (kind == Kind::kBackup) sync.set_backup(1 + random() % 2);
    // The long way too, with norms; never clipping.
    if (random() % 2 == 0) job.mutable_optimizer()->set_clip_norm(1e30);
    return job;
  }

  static ClusterView FirstView(Random& random, uint64_t seed) {
    ClusterView view = MakeView({.tensors = {{"a", 5}, {"b", 3}, {"c", 2}},
                                 .shards = 1 + static_cast<uint32_t>(random() % 3),
                                 .workers = 1 + static_cast<uint32_t>(random() % 4),
                                 .placement_seed = 1 + seed});
    view.set_training_samples(kElasticSamples);
    view.set_test_samples(kTestSamples);
    return view;
  }

  CallHeader HeaderOf(const Worker& worker) const {
    return testing::HeaderOf(views_[worker.view], worker.member);
  }

  void Launch(uint64_t member, uint32_t ordinal) {
    workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_.back();
    worker.member = member;
    worker.ordinal = ordinal;
    worker.view = views_.size() - 1;
  }

  template <class Result>
  Result Track(Result result) {
    answered_.push_back([result] { return result->has_value(); });
    return result;
  }
  absl::Duration Patience() { return absl::Milliseconds(1 + Below(200)); }

  // --- A worker's part

  // What a refused call makes of its caller; whether it was refused. A fenced one is over.
  bool Refused(Worker& worker, const absl::Status& status) {
    if (status.ok()) return false;
    if (absl::IsAborted(status)) {
      EXPECT_NE(removed_.count(worker.member), 0u) << status;
      worker.over = true;
      ++seen["fenced"];
    } else if (absl::IsFailedPrecondition(status)) {
      LearnView(worker);
    } else {
      EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
    }
    return true;
  }

  void LearnView(Worker& worker) {
    const ClusterView& view = views_.back();
    for (const Member& member : view.members()) {
      if (member.id() == worker.member) worker.view = views_.size() - 1;
    }
  }

  void WorkerEvent(Worker& worker) {
    if (worker.over) return;
    if (!worker.entered) return EnterEvent(worker);
    if (!worker.to_push.empty()) return PushEvent(worker);
    if (worker.complete == nullptr) {
      worker.complete = Track(cluster_.Complete(CompletionOf(worker), Patience()));
      return;
    }
    if (!worker.complete->has_value()) return;
    const absl::StatusOr<CompleteReply> reply = **worker.complete;
    worker.complete = nullptr;
    if (Refused(worker, reply.status())) return;
    OnVerdict(worker, reply->verdict());
  }

  void EnterEvent(Worker& worker) {
    if (worker.enter == nullptr) {
      worker.enter = Track(cluster_.Enter(HeaderOf(worker), worker.ordinal, Patience()));
      if (!worker.enter->has_value()) ++seen["parked enter"];
      return;
    }
    if (!worker.enter->has_value()) return;
    const absl::StatusOr<EnterReply> reply = **worker.enter;
    worker.enter = nullptr;
    if (Refused(worker, reply.status())) return;
    worker.entered = true;
    worker.step = reply->step();
    worker.attempt = reply->attempt();
    worker.position = reply->position();
    worker.divided_among.assign(reply->contributors().begin(), reply->contributors().end());
    ASSERT_NE(oracle_.ViewOf(reply->view_epoch()), nullptr);
    ASSERT_EQ(worker.divided_among, OrdinalsOf(*oracle_.ViewOf(reply->view_epoch())));
    if (worker.attempt > 0) ++seen["entered a later attempt"];
    StartAttempt(worker);
  }

  void StartAttempt(Worker& worker) {
    worker.to_push.clear();
    for (const Slice& slice : views_[0].slices()) worker.to_push.push_back(slice.id());
    std::shuffle(worker.to_push.begin(), worker.to_push.end(), random_);
  }

  void PushEvent(Worker& worker) {
    const uint32_t slice = worker.to_push.back();
    const Slice& spec = views_[0].slices(static_cast<int>(slice));
    PushRequest push =
        cluster_.MakePush(worker.ordinal, worker.step, worker.attempt, slice,
                          Floats(spec.end() - spec.begin(),
                                 GradientOf(worker.member, worker.step, worker.attempt, slice)));
    *push.mutable_header() = HeaderOf(worker);
    const auto reply = cluster_.Push(push);
    sent_.push_back(push);
    if (Refused(worker, reply.status()) || OneIn(10)) return;  // or the answer is lost
    worker.to_push.pop_back();
  }

  CompleteRequest CompletionOf(const Worker& worker) {
    CompleteRequest request;
    *request.mutable_header() = HeaderOf(worker);
    request.set_step(worker.step);
    request.set_attempt(worker.attempt);
    request.set_data_epoch(worker.position.epoch());
    Share& share = *request.mutable_share();
    share.set_contributor(worker.ordinal);
    share.set_weight(1);
    share.set_loss_sum(static_cast<double>(worker.member));  // says whose it is
    const auto place =
        std::find(worker.divided_among.begin(), worker.divided_among.end(), worker.ordinal);
    EXPECT_NE(place, worker.divided_among.end());
    const auto division = Divide(worker.position, kElasticSamples,
                                 static_cast<uint32_t>(worker.divided_among.size()), kElasticBatch);
    const auto& ranges = division[static_cast<size_t>(place - worker.divided_among.begin())];
    share.set_samples(Count(ranges));
    for (const SampleRange& range : ranges) *share.add_ranges() = range;
    return request;
  }

  void OnVerdict(Worker& worker, const Verdict& verdict) {
    ASSERT_EQ(verdict.step(), worker.step);
    if (verdict.outcome() == Verdict::RETRY) {
      ASSERT_EQ(verdict.attempt(), worker.attempt);
      ++worker.attempt;
      return StartAttempt(worker);
    }
    if (verdict.outcome() == Verdict::STALE) {
      ++seen["late"];
      worker.entered = false;
      return;
    }
    std::vector<SampleRange> used;
    for (const Share& share : verdict.shares()) {
      used.insert(used.end(), share.ranges().begin(), share.ranges().end());
    }
    if (!used.empty()) {
      ASSERT_EQ(MarkUsed(worker.position, verdict.data_epoch(), used, kElasticSamples),
                absl::OkStatus());
    }
    worker.divided_among.assign(verdict.contributors().begin(), verdict.contributors().end());
    ++worker.step;
    worker.attempt = 0;
    if (std::count(worker.divided_among.begin(), worker.divided_among.end(), worker.ordinal) == 0) {
      ASSERT_NE(removed_.count(worker.member), 0u);
      worker.over = true;
      return;
    }
    StartAttempt(worker);
  }

  // Any push, of whomever, once more.
  void ReplayEvent() {
    if (sent_.empty()) return;
    (void)cluster_.Push(sent_[sent_.size() - 1 - Below(std::min<size_t>(sent_.size(), 60))]);
  }

  // --- Shards and views

  void MessageEvent(uint32_t shard) {
    for (ToShard& message : cluster_.leader().TakeOutbox()) {
      outbox_[message.shard].push_back(std::move(message));
    }
    std::deque<ToShard>& queue = outbox_[shard];
    if (queue.empty()) return;
    const ToShard message = queue.front();
    Replies replies;
    absl::Status status;
    if (const auto* close = std::get_if<CloseRequest>(&message.request)) {
      auto reply = cluster_.shard(shard).Close(*close);
      status = reply.status();
      if (reply.ok()) {
        cluster_.leader().OnCloseReply(shard, *close, *reply, cluster_.now(), replies);
      }
      // A repetition whose first answer was lost may come when all is decided.
      if (absl::IsAborted(status)) status = absl::OkStatus();
    } else {
      status = cluster_.shard(shard)
                   .Decide(std::get<DecideRequest>(message.request), cluster_.now(), replies)
                   .status();
    }
    if (absl::IsFailedPrecondition(status) || absl::IsUnavailable(status)) {
      ++seen["verdict before its view"];
      return;
    }
    ASSERT_EQ(status, absl::OkStatus());
    if (!OneIn(4)) queue.pop_front();
  }

  // A shard hears of a newer view; it may miss those between.
  void ViewEvent(uint32_t shard) {
    const size_t newer = views_.size() - 1 - has_view_[shard];
    if (newer == 0) return;
    const size_t by = OneIn(2) ? 1 : 1 + Below(newer);
    if (by > 1) ++seen["skipped view"];
    has_view_[shard] += by;
    Replies replies;
    ASSERT_EQ(cluster_.shard(shard).SetView(views_[has_view_[shard]], cluster_.now(), replies),
              absl::OkStatus());
  }

  void ChangeEvent() {
    ClusterView view = views_.back();
    std::vector<uint32_t> ordinals = OrdinalsOf(view);
    std::vector<uint32_t> empty;
    for (const Contributor& contributor : view.contributors()) {
      if (contributor.part_members(0) == 0) empty.push_back(contributor.ordinal());
    }
    if (changes_ >= kChanges) {
      // Nobody goes any more; whoever is waited for comes.
      if (!empty.empty()) Come(view, empty[0]);
      return;
    }
    // Now and then several at once.
    do {
      ++changes_;
      ordinals = OrdinalsOf(view);
      const uint32_t ordinal = ordinals[Below(ordinals.size())];
      switch (Below(4)) {
        case 0:
          if (ordinals.size() > 1) view = Without(view, ordinal);
          break;
        case 1:
          view = WithNobodyAt(view, ordinal);
          break;
        case 2:
          return Come(view, ordinal);
        case 3:
          if (ordinals.size() < 5) {
            uint32_t free = 0;
            while (std::count(ordinals.begin(), ordinals.end(), free) != 0) ++free;
            return Come(view, free);
          }
          break;
      }
    } while (OneIn(3));
    Publish(view);
  }

  void Come(const ClusterView& view, uint32_t ordinal) {
    const uint64_t member = next_member_++;
    Publish(WithMemberAt(view, ordinal, member));
    Launch(member, ordinal);
  }

  void Publish(const ClusterView& view) {
    if (view.view_epoch() == views_.back().view_epoch()) return;
    views_.push_back(view);
    for (const auto& worker : workers_) {
      const bool there =
          std::any_of(view.members().begin(), view.members().end(),
                      [&](const Member& member) { return member.id() == worker->member; });
      if (there || !removed_.emplace(worker->member, view.view_epoch()).second) continue;
      // The others go on until they hear of it.
      if (OneIn(2)) worker->over = true;
    }
  }

  bool Done() {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      if (cluster_.shard(shard).version() < kSteps) return false;
    }
    return true;
  }

  Random random_;
  std::deque<ClusterView> views_;
  const JobConfig job_;
  ShardCluster cluster_;
  std::vector<size_t> has_view_;  // by shard, index into views_
  std::vector<std::deque<ToShard>> outbox_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<PushRequest> sent_;
  std::vector<std::function<bool()>> answered_;
  std::map<uint64_t, uint64_t> removed_;  // member -> first view without it
  uint64_t next_member_ = 10;
  int changes_ = 0;
  ElasticOracle oracle_;
};

// `must_happen`: beside what happens in all of them.
void RunStorms(Kind kind, const std::vector<std::string>& must_happen) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ElasticStorm storm(seed, kind);
    storm.Run();
    if (::testing::Test::HasFailure()) return;
    for (const auto& [what, times] : storm.seen) seen[what] += times;
  }
  std::vector<std::string> all = {"fenced",
                                  "parked enter",
                                  "entered a later attempt",
                                  "skipped view",
                                  "verdict before its view",
                                  "share of one that has gone",
                                  "retry",
                                  "skip of nobody",
                                  "version kept"};
  all.insert(all.end(), must_happen.begin(), must_happen.end());
  for (const std::string& what : all) {
    EXPECT_GT(seen[what], 20) << what;
    ::testing::Test::RecordProperty(what, seen[what]);
  }
}

TEST(ShardElasticPropertyTest, WhoeverComesAndGoesEachStepIsTheSumOfItsVerdictsShares) {
  RunStorms(Kind::kSumAsTheyCome, {});
}

TEST(ShardElasticPropertyTest, TheSameWhereContributionsAreKeptApart) {
  RunStorms(Kind::kDeterministic, {});
}

TEST(ShardElasticPropertyTest, WithBackupsTheFirstOnesCountAndNothingOfTheLateOnes) {
  RunStorms(Kind::kBackup, {"late", "left one out", "all who have data"});
}

}  // namespace
}  // namespace parley::testing
