// Whatever operators ask for and workers do: who takes part is what an independent model says, no
// more take part than the job wants, and each sample counts once. The seed is in the message of a
// failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/coordinator/elastic_fixture.h"

namespace parley {
namespace {

using Process = CoordinatorFixture::Process;

// One that has joined and not gone.
struct Here {
  Process* process = nullptr;
  bool drained = false;
  bool registered = false;
  bool in_view = false;
};

class Scaling {
 public:
  explicit Scaling(uint64_t seed) : random_(seed), options_(OptionsOf(random_)), job_(options_) {
    wanted_ = options_.job.cluster().workers();
    least_ = std::max(options_.job.cluster().min_workers(),
                      options_.job.consistency().sync().backup() + 1);
  }

  void Run() {
    for (int i = 0; i < 2; ++i) job_.shards.push_back(&job_.StartAndJoin(SHARD));
    for (int call = 0; call < 250 && !failed_ && !testing::Test::HasFailure(); ++call) {
      Act();
      Follow();
      Check();
    }
  }

  int changes() const { return changes_; }
  int departed() const { return departed_; }
  int lost() const { return lost_; }
  bool failed() const { return failed_; }
  bool trained() const { return job_.core.progress().step() > 0; }

 private:
  static CoordinatorCore::Options OptionsOf(std::mt19937_64& random) {
    const uint32_t workers = 2 + random() % 3;
    auto options = Elastic(workers, 1 + random() % 2, GO_ON);
    options.job.mutable_consistency()->mutable_sync()->set_backup(random() % 3 == 0 ? 1 : 0);
    options.job.set_epochs(1000);
    options.stall_timeout = absl::Hours(10);  // nobody is lost for being slow to go
    return options;
  }

  uint32_t Staying() const {
    return std::count_if(here_.begin(), here_.end(),
                         [](const auto& one) { return !one.second.drained; });
  }
  uint32_t StayingInView() const {
    return std::count_if(here_.begin(), here_.end(),
                         [](const auto& one) { return !one.second.drained && one.second.in_view; });
  }
  bool Trains() const { return job_.core.phase() == TRAINING; }
  Here* Any() {
    if (here_.empty()) return nullptr;
    return &std::next(here_.begin(), static_cast<int64_t>(random_() % here_.size()))->second;
  }

  void Act() {
    switch (random_() % 10) {
      case 0:
        return SetWorkers(1 + random_() % 8);
      case 1:
        return Drain(random_() % 8);
      case 2:
      case 3:
        return Join();
      case 4:
      case 5:
        return Register(Any());
      case 6:
        return Depart(Any());
      case 7:
        return random_() % 4 == 0 ? Lose(Any()) : job_.Pass(absl::Milliseconds(500));
      default:
        return Verdict();
    }
  }

  void SetWorkers(uint32_t wanted) {
    // By ordinal: the last ones go.
    std::vector<Here*> to_go;
    for (auto& [ordinal, one] : here_) {
      if (!one.drained) to_go.push_back(&one);
    }
    // Where contributor 0 was lost before there was a view, its place stays free.
    const bool first_is_to_come =
        job_.core.phase() == GATHERING && !to_go.empty() && to_go.front()->process->ordinal != 0;
    const size_t room = wanted - (first_is_to_come ? 1 : 0);
    to_go.erase(to_go.begin(), to_go.begin() + std::min(room, to_go.size()));
    const uint32_t leaving =
        std::count_if(to_go.begin(), to_go.end(), [](const Here* one) { return one->in_view; });
    const bool right = wanted >= least_ && (job_.core.phase() == GATHERING || Trains()) &&
                       (!Trains() || to_go.empty() || StayingInView() - leaving >= least_);
    const auto reply = job_.SetWorkers(wanted);
    ASSERT_EQ(reply.ok(), right) << reply.status();
    if (!right) return;
    ASSERT_EQ(reply->before(), wanted_);
    ASSERT_EQ(reply->here(), Staying() - to_go.size());
    changes_ += wanted_ != wanted;
    wanted_ = wanted;
    for (Here* one : to_go) one->drained = true;
  }

  void Drain(uint32_t ordinal) {
    const auto found = here_.find(ordinal);
    const bool is_told = found != here_.end() && found->second.drained;
    const bool right = Trains() && found != here_.end() &&
                       (is_told || StayingInView() - found->second.in_view >= least_);
    const absl::Status status = job_.Drain(WORKER, ordinal);
    ASSERT_EQ(status.ok(), right) << status;
    if (!right || is_told) return;
    --wanted_;
    found->second.drained = true;
  }

  void Join() {
    Process& fresh = job_.Start(WORKER);
    uint32_t ordinal = 0;
    while (here_.count(ordinal) != 0) ++ordinal;
    const bool has_place = Staying() < wanted_;
    const absl::Status status = job_.Join(fresh);
    fresh.alive = status.ok();
    ASSERT_EQ(status.ok(), has_place) << status;
    if (!has_place) return;
    ASSERT_EQ(fresh.ordinal, ordinal);
    here_[ordinal].process = &fresh;
  }

  void Register(Here* one) {
    if (one == nullptr) return;
    ASSERT_TRUE(job_.Register(*one->process).ok());
    if (one->drained && !one->in_view) return;
    one->registered = true;
    one->in_view = one->in_view || Trains();
  }

  void Depart(Here* one) {
    if (one == nullptr) return;
    const bool told = one->drained;
    const absl::Status status = job_.Depart(*one->process);
    ASSERT_EQ(status.ok(), told) << status;
    if (!told) return;
    ASSERT_TRUE(job_.Depart(*one->process).ok()) << "again";
    ++departed_;
    one->process->alive = false;
    here_.erase(one->process->ordinal);
  }

  void Lose(Here* one) {
    if (one == nullptr) return;
    const bool gathering = job_.core.phase() == GATHERING;
    const uint32_t min = options_.job.cluster().min_workers();
    const uint32_t workers = options_.job.cluster().workers();
    failed_ =
        !one->drained && (gathering ? min >= workers : one->in_view && StayingInView() <= min);
    one->process->alive = false;
    job_.Pass(absl::Seconds(11));
    ++lost_;
    here_.erase(one->process->ordinal);
    ASSERT_EQ(job_.core.phase() == FAILED, failed_);
  }

  void Verdict() {
    if (!Trains()) return;
    for (auto& process : job_.processes) {
      process->header.set_job_epoch(1);
      process->header.set_view_epoch(job_.core.view_epoch());
    }
    const class Verdict verdict = job_.NextVerdict();
    for (const Share& share : verdict.shares()) samples_ += share.samples();
    ASSERT_TRUE(job_.Report(*job_.shards[0], {verdict}).ok());
  }

  // What the job does by itself.
  void Follow() {
    if (failed_ || testing::Test::HasFailure() || begun_) return;
    const bool all =
        Staying() == wanted_ && std::all_of(here_.begin(), here_.end(), [](const auto& one) {
          return one.second.drained || one.second.registered;
        });
    ASSERT_EQ(job_.core.phase(), all ? PREPARING : GATHERING);
    if (!all) return;
    begun_ = true;
    for (auto& [ordinal, one] : here_) one.in_view = !one.drained;
    job_.LearnView();
    for (Process* shard : job_.shards) ASSERT_TRUE(job_.Ready(*shard).ok());
    ASSERT_EQ(job_.core.phase(), TRAINING);
  }

  void Check() {
    if (failed_ || testing::Test::HasFailure()) return;
    Places places;
    for (const auto& [ordinal, one] : here_) {
      if (one.in_view) places.push_back({ordinal, Id(one.process)});
    }
    ASSERT_EQ(PlacesOf(job_.core.view()), places);
    ASSERT_LE(Staying(), wanted_);
    ASSERT_EQ(job_.core.wanted_workers(), wanted_);
    ASSERT_EQ(job_.core.StayingContributors(), StayingInView());
    ASSERT_EQ(job_.core.progress().samples(), samples_);
    for (const auto& [ordinal, one] : here_) {
      one.process->seen_revision = 0;
      job_.Watch(*one.process);
      ASSERT_TRUE(one.process->watched.has_value() && one.process->watched->ok());
      ASSERT_EQ((*one.process->watched)->drained(), one.drained) << ordinal;
    }
    CheckRestored();
  }

  // The next coordinator is told all of it.
  void CheckRestored() {
    CoordinatorCore next(options_);
    ASSERT_TRUE(next.Restore(job_.core.DurableState()).ok());
    ASSERT_EQ(next.wanted_workers(), wanted_);
    ASSERT_EQ(next.StayingContributors(), StayingInView());
    std::set<std::pair<uint32_t, bool>> members;
    const auto status = next.GetStatus({}, job_.now);
    ASSERT_TRUE(status.ok()) << status.status();
    for (const MemberStatus& member : status->members()) {
      if (member.member().role() != WORKER) continue;
      members.insert({member.member().ordinal(), member.drained()});
    }
    std::set<std::pair<uint32_t, bool>> expected;
    for (const auto& [ordinal, one] : here_) expected.insert({ordinal, one.drained});
    ASSERT_EQ(members, expected);
  }

  std::mt19937_64 random_;
  const CoordinatorCore::Options options_;
  CoordinatorFixture job_;
  uint32_t wanted_ = 0;
  uint32_t least_ = 0;
  std::map<uint32_t, Here> here_;  // by ordinal
  bool begun_ = false;             // there is a view
  bool failed_ = false;
  uint64_t samples_ = 0;
  int changes_ = 0;
  int departed_ = 0;
  int lost_ = 0;
};

TEST(CoordinatorScalingPropertyTest, WhoTakesPartIsWhatTheModelSays) {
  int changes = 0;
  int departed = 0;
  int lost = 0;
  int trained = 0;
  int failed = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Scaling scaling(seed);
    scaling.Run();
    if (HasFailure()) return;
    changes += scaling.changes();
    departed += scaling.departed();
    lost += scaling.lost();
    trained += scaling.trained();
    failed += scaling.failed();
  }
  // It has seen what it is about.
  EXPECT_GT(changes, 500);
  EXPECT_GT(departed, 500);
  EXPECT_GT(lost, 100);
  EXPECT_GT(trained, 100);
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace parley
