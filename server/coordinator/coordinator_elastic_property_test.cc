// Whatever workers do, and in whatever order: views change as docs/membership.md says, and the job
// ends. The seed is in the message of a failure.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace parley {
namespace {

using Process = CoordinatorFixture::Process;
using Places = std::map<std::pair<uint32_t, int>, uint64_t>;  // contributor, part -> member

constexpr uint32_t kShards = 2;
constexpr size_t kMostProcesses = 10;  // without stages

class Chaos {
 public:
  explicit Chaos(uint64_t seed, uint32_t stages = 0)
      : random_(seed),
        stages_(stages),
        options_(OptionsOf(random_, stages)),
        job_(options_),
        waits_(Waits(options_.job)) {}

  void Run() {
    Begin();
    for (int call = 0; call < 300 && !Ended() && Well(); ++call) Act();
    End();
  }

  // What was seen, for the check that the test sees anything at all.
  uint64_t views() const { return epoch_; }
  Phase phase() const { return job_.core.phase(); }

 private:
  static CoordinatorCore::Options OptionsOf(std::mt19937_64& random, uint32_t stages) {
    const uint32_t workers = 1 + random() % 5;
    auto options = CoordinatorFixture::DefaultOptions(kShards, workers);
    options.job.mutable_cluster()->set_min_workers(random() % 3 == 0 ? 1 + random() % workers : 1);
    options.job.mutable_consistency()->mutable_sync()->set_lost_worker(random() % 2 == 0 ? GO_ON
                                                                                         : WAIT);
    options.job.mutable_checkpoint()->set_at_end(random() % 2 == 0);
    options.job.set_epochs(random() % 2 == 0 ? 1 : 20);
    if (stages != 0) {
      options.job.mutable_cluster()->set_stages(stages);
      options.job.mutable_cluster()->set_min_workers(workers);
      options.job.mutable_consistency()->mutable_sync()->set_lost_worker(WAIT);
      options.job.set_max_restarts(random() % 8 == 0 ? 0 : 1);
    }
    return options;
  }
  static bool Waits(const JobConfig& job) { return job.consistency().sync().lost_worker() == WAIT; }
  bool Ended() const { return job_.core.phase() == FINISHED || job_.core.phase() == FAILED; }
  static bool Well() { return !testing::Test::HasFailure(); }

  void Begin() {
    job_.Gather();
    watcher_ = job_.shards[1];
    if (random_() % 4 != 0) {
      for (Process* shard : job_.shards) ASSERT_TRUE(job_.Ready(*shard).ok());
    }
    Check("the start");
  }

  Process& AnyContributing() {
    const size_t workers = job_.processes.size() - kShards;
    return *job_.processes[kShards + random_() % workers];
  }

  void Act() {
    // Who calls about the job's state knows the view.
    for (auto& process : job_.processes) {
      process->header.set_job_epoch(1);
      process->header.set_view_epoch(job_.core.view_epoch());
    }
    Process& worker = AnyContributing();
    switch (random_() % 16) {
      case 0: {  // a new process, some at the address of another one
        const size_t most = kMostProcesses + 2 * job_.stages.size();
        if (job_.processes.size() > most) return;
        Process& fresh = job_.Start(stages_ != 0 && random_() % 2 == 0 ? STAGE : WORKER);
        if (random_() % 3 == 0) fresh.address = worker.address;
        fresh.alive = job_.Join(fresh).ok();
        return Check("a new process joins");
      }
      case 1:
      case 2:
      case 12:
      case 13:
        (void)job_.Register(worker);
        return Check("a worker registers");
      case 3:
        worker.alive = false;
        return;
      case 4:
      case 14:  // silent for some time only, or fenced meanwhile: then it comes as a new
                // incarnation
        if (!job_.Heartbeat(worker).ok()) {
          worker.header.set_incarnation(random_());
          (void)job_.Join(worker);
        }
        worker.alive = true;
        return Check("a worker returns");
      case 5:
        (void)job_.Join(worker);
        return Check("a join is repeated");
      case 6:
      case 7:
        (void)job_.Report(*job_.shards[0], {job_.NextVerdict()});
        return Check("a verdict");
      case 8:
        if (job_.core.progress().position().epoch() < options_.job.epochs()) return;
        for (auto& process : job_.processes) {
          if (process->role != WORKER || random_() % 2 == 0) continue;
          (void)job_.Finish(*process, job_.core.progress().step());
          Check("a worker finishes");
        }
        return;
      case 9:
        if (TakesPart(worker)) return;  // it would end the job, as it should
        random_() % 2 == 0 ? (void)job_.Leave(worker) : (void)job_.Fail(worker, "gives up");
        EXPECT_NE(job_.core.phase(), FAILED) << "who takes no part ends no job";
        return Check("a worker that takes no part goes");
      case 10:
        for (Process* shard : job_.shards) (void)job_.Ready(*shard);
        return Check("the shards are ready");
      default:
        return Pass(absl::Milliseconds(random_() % 15'000), /*getting_on=*/random_() % 8 != 0);
    }
  }

  void Pass(absl::Duration duration, bool getting_on) {
    const absl::Time end = job_.now + duration;
    while (job_.now < end && Well()) {
      job_.Pass(absl::Milliseconds(500), getting_on);
      Check("time goes on");
    }
  }

  bool TakesPart(const Process& process) const {
    for (const auto& [place, member] : places_) {
      if (member == process.header.member()) return true;
    }
    return false;
  }

  // After every call.
  void Check(const char* after) {
    SCOPED_TRACE(absl::StrCat("after: ", after, "; view ", job_.core.view_epoch()));
    const ClusterView& view = job_.core.view();
    Places places;
    std::set<uint64_t> behind;
    uint32_t live = 0;
    for (const Contributor& one : view.contributors()) {
      ASSERT_EQ(one.part_members_size(), static_cast<int>(1 + stages_));
      ASSERT_LT(one.ordinal(), options_.job.cluster().workers());
      for (int part = 0; part < one.part_members_size(); ++part) {
        const uint64_t member = one.part_members(part);
        ASSERT_TRUE(places.emplace(std::pair(one.ordinal(), part), member).second)
            << "two of one ordinal";
        if (member == 0) {
          ASSERT_TRUE(waits_) << "nobody behind " << one.ordinal();
          continue;
        }
        ++live;
        ASSERT_TRUE(behind.insert(member).second) << member << " stands behind two contributors";
        ASSERT_EQ(gone_.count(member), 0u) << member << " was taken out and is back";
      }
    }
    if (stages_ != 0) {
      ASSERT_EQ(places.size(), (1 + stages_) * options_.job.cluster().workers());
    }

    ASSERT_GE(view.view_epoch(), epoch_);
    ASSERT_EQ(view.view_epoch() != epoch_, places != places_);
    for (const auto& [place, member] : places_) {
      if (member != 0 && behind.count(member) == 0) gone_.insert(member);
    }
    epoch_ = view.view_epoch();
    places_ = places;

    if (stages_ == 0 && live < options_.job.cluster().min_workers()) {
      ASSERT_EQ(job_.core.phase(), FAILED) << live << " workers are left";
    }
    if (job_.core.phase() != FAILED) {
      std::set<uint64_t> members;
      for (const Member& member : view.members()) members.insert(member.id());
      ASSERT_EQ(members.size(), live + kShards);
      std::set<uint64_t> present;
      for (const Member& member : job_.core.Members()) present.insert(member.id());
      for (uint64_t member : behind) {
        ASSERT_EQ(members.count(member), 1u);
        ASSERT_TRUE(StandsInItsOwnPlace(member));
        ASSERT_EQ(present.count(member), 1u) << member << " is fenced and takes part";
      }
    }
    // A parked call is told of the newest view.
    if (watcher_->watched.has_value()) {
      ASSERT_TRUE(watcher_->watched->ok());
      told_ = (*watcher_->watched)->view().view_epoch();
      told_phase_ = (*watcher_->watched)->phase();
      job_.Watch(*watcher_);
      if (watcher_->watched.has_value()) {
        told_ = (*watcher_->watched)->view().view_epoch();
        told_phase_ = (*watcher_->watched)->phase();
      }
    }
    ASSERT_EQ(told_, epoch_);
    ASSERT_EQ(told_phase_, job_.core.phase());
  }

  bool StandsInItsOwnPlace(uint64_t id) const {
    for (const Member& member : job_.core.view().members()) {
      if (member.id() != id) continue;
      const ContributorPart place =
          PartPlaceOf(member.role(), member.ordinal(), {.stages = stages_});
      return places_.at({place.contributor, static_cast<int>(place.part)}) == id;
    }
    return false;
  }

  // Nobody calls any more but to say that it is alive, and some not even that.
  void End() {
    const int who = static_cast<int>(random_() % 3);  // 0: nobody, 1: the shards, 2: all
    for (auto& process : job_.processes) {
      process->alive = process->alive && (who == 2 || (who == 1 && process->role == SHARD));
    }
    // A lease, a wait for a replacement, and a stall at most, one after the other.
    Pass(absl::Minutes(4), /*getting_on=*/false);
    if (!Well()) return;
    ASSERT_TRUE(Ended()) << Phase_Name(job_.core.phase());
    ASSERT_EQ(job_.core.phase() == FAILED, job_.core.cause().has_value());
    if (job_.core.phase() == FAILED) {
      ASSERT_TRUE(job_.core.MayExit(job_.now));
    }
  }

  std::mt19937_64 random_;
  const uint32_t stages_;
  const CoordinatorCore::Options options_;
  CoordinatorFixture job_;
  const bool waits_;
  Process* watcher_ = nullptr;
  uint64_t epoch_ = 0;
  Places places_;
  std::set<uint64_t> gone_;
  uint64_t told_ = 0;
  Phase told_phase_ = PHASE_UNSPECIFIED;
};

TEST(CoordinatorElasticPropertyTest, ViewsFollowTheWorkersAndTheJobEnds) {
  uint64_t views = 0;
  std::map<Phase, int> ends;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Chaos chaos(seed);
    chaos.Run();
    if (HasFailure()) return;
    views += chaos.views();
    ++ends[chaos.phase()];
  }
  // It has seen what it is about.
  EXPECT_GT(views, 1000u);
  EXPECT_GT(ends[FINISHED], 15);
  EXPECT_GT(ends[FAILED], 50);
}

TEST(CoordinatorElasticPropertyTest, PipelinesKeepTheirPlacesAndTheJobEnds) {
  uint64_t views = 0;
  std::map<Phase, int> ends;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Chaos chaos(seed, 1 + seed % 3);
    chaos.Run();
    if (HasFailure()) return;
    views += chaos.views();
    ++ends[chaos.phase()];
  }
  EXPECT_GT(views, 1000u);
  EXPECT_GT(ends[FINISHED], 5);
  EXPECT_GT(ends[FAILED], 50);
}

}  // namespace
}  // namespace parley
