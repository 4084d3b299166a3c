// A property of the shards' core: of each pipeline a step has what one composition of it has
// computed, whoever is lost and replaced when, and whatever is on its way then. Random
// interleavings; the seed is printed with each failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/parameter_shard/pipeline_views_for_test.h"
#include "server/parameter_shard/shard.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

constexpr uint64_t kSteps = 20;
constexpr int kChanges = 16;

// Numbers that tell whose they are: another one for each composition.
float GradientOf(uint32_t contributor, uint64_t composition, uint64_t step, uint32_t part) {
  return static_cast<float>(1 + (7919 * composition + 31 * step + 5 * contributor + part) % 1000);
}

class PipelineStorm {
 public:
  explicit PipelineStorm(uint64_t seed)
      : random_(seed),
        views_{PipelineView(1 + static_cast<uint32_t>(random_() % 3),
                            1 + static_cast<uint32_t>(random_() % 2))},
        cluster_(Job(random_), views_[0]),
        has_view_(cluster_.size(), 0),
        outbox_(cluster_.size()) {
    for (const Contributor& contributor : views_[0].contributors()) {
      for (uint32_t part = 0; part <= kStages; ++part) Launch(contributor.ordinal(), part);
    }
  }

  void Run() {
    for (int event = 0; event < 200'000 && !Done(); ++event) {
      const uint64_t kind = Below(100);
      if (kind < 60) {
        MemberEvent(*members_[Below(members_.size())]);
      } else if (kind < 82) {
        MessageEvent(static_cast<uint32_t>(Below(cluster_.size())));
      } else if (kind < 90) {
        ViewEvent(static_cast<uint32_t>(Below(cluster_.size())));
      } else if (kind < 97) {
        LearnView(*members_[Below(members_.size())]);
      } else if (kind < 99) {
        ChangeEvent();
      } else {
        cluster_.Advance(absl::Milliseconds(Below(20)));
      }
      if (::testing::Test::HasFatalFailure()) return;
      CheckValues();
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_TRUE(Done()) << "no end: step " << cluster_.leader().version() + 1 << " attempt "
                        << cluster_.leader().attempt() << ", changes " << changes_;
  }

  std::map<std::string, int> seen;

 private:
  struct Place {
    uint64_t id = 0;
    uint32_t contributor = 0;
    uint32_t part = 0;
    size_t view = 0;    // the newest that it has, index into views_
    bool over = false;  // dead, or knows that it is fenced
    bool entered = false;
    uint64_t composition = 0;  // by which it has entered
    uint64_t step = 0;
    uint32_t attempt = 0;
    std::vector<uint32_t> to_push;
    ShardCluster::EnterResult enter;
    ShardCluster::CompleteResult complete;
  };

  static JobConfig Job(std::mt19937_64& random) {
    JobConfig job = SummingJob();
    // The long way too, with norms; never clipping.
    if (random() % 2 == 0) job.mutable_optimizer()->set_clip_norm(1e30);
    job.mutable_consistency()->mutable_sync()->set_deterministic(random() % 2 == 0);
    return job;
  }

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }

  const Contributor& ContributorOf(const Place& place) const {
    return views_[place.view].contributors(static_cast<int>(place.contributor));
  }
  CallHeader HeaderOf(const Place& place) const {
    return testing::HeaderOf(views_[place.view], place.id);
  }

  void Launch(uint32_t contributor, uint32_t part) {
    members_.push_back(std::make_unique<Place>());
    Place& place = *members_.back();
    place.contributor = contributor;
    place.part = part;
    place.view = views_.size() - 1;
    place.id = ContributorOf(place).part_members(static_cast<int>(part));
  }

  // --- A member's part

  void LearnView(Place& place) {
    const ClusterView& view = views_.back();
    for (const Member& member : view.members()) {
      if (member.id() == place.id) place.view = views_.size() - 1;
    }
    // As a session that finds its pipeline changed; or it goes on a while, and finds out later.
    if (place.entered && ContributorOf(place).attempt() != place.composition && OneIn(2)) {
      GiveUp(place);
    }
  }

  void GiveUp(Place& place) {
    place.entered = false;
    place.enter = nullptr;
    place.complete = nullptr;  // nobody waits for the answer
  }

  // What a refused call makes of its caller; whether it was refused.
  bool Refused(Place& place, const absl::Status& status) {
    if (status.ok()) return false;
    if (absl::IsAborted(status)) {
      ++seen["aborted"];
      LearnView(place);
      GiveUp(place);
    } else if (absl::IsFailedPrecondition(status)) {
      LearnView(place);
    } else {
      EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
    }
    return true;
  }

  void MemberEvent(Place& place) {
    if (place.over) return;
    if (!place.entered) return EnterEvent(place);
    if (!place.to_push.empty()) return PushEvent(place);
    if (place.complete == nullptr) {
      CompleteRequest request = cluster_.MakeComplete(place.contributor, place.step, place.attempt);
      *request.mutable_header() = HeaderOf(place);
      request.set_part(place.part);
      request.set_composition(place.composition);
      // The verdict has the sum of all parts'.
      if (place.part == 0) {
        request.mutable_share()->set_loss_sum(static_cast<double>(place.composition));
      }
      place.complete = cluster_.Complete(request, absl::Milliseconds(1 + Below(200)));
      return;
    }
    if (!place.complete->has_value()) return;
    const absl::StatusOr<CompleteReply> reply = **place.complete;
    place.complete = nullptr;
    if (!Refused(place, reply.status())) OnVerdict(place, reply->verdict());
  }

  void EnterEvent(Place& place) {
    const Contributor& own = ContributorOf(place);
    if (std::count(own.part_members().begin(), own.part_members().end(), uint64_t{0}) != 0) {
      return LearnView(place);  // it waits until its pipeline is whole
    }
    if (place.enter == nullptr) {
      place.composition = own.attempt();
      place.enter =
          cluster_.Enter(HeaderOf(place), place.contributor, absl::Milliseconds(1 + Below(200)));
      return;
    }
    if (!place.enter->has_value()) return;
    const absl::StatusOr<EnterReply> reply = **place.enter;
    place.enter = nullptr;
    if (Refused(place, reply.status())) return;
    place.entered = true;
    place.step = reply->step();
    place.attempt = reply->attempt();
    if (place.attempt > 0) ++seen["entered a later attempt"];
    StartAttempt(place);
  }

  void StartAttempt(Place& place) {
    place.to_push.clear();
    for (uint32_t slice = 0; slice < kPartsOfSlice.size(); ++slice) {
      const std::vector<uint32_t>& parts = kPartsOfSlice[slice];
      if (std::count(parts.begin(), parts.end(), place.part) != 0) place.to_push.push_back(slice);
    }
    std::shuffle(place.to_push.begin(), place.to_push.end(), random_);
  }

  void PushEvent(Place& place) {
    const float value = GradientOf(place.contributor, place.composition, place.step, place.part);
    PushRequest push = cluster_.MakePush(place.contributor, place.step, place.attempt,
                                         place.to_push.back(), Floats(2, value));
    *push.mutable_header() = HeaderOf(place);
    push.set_part(place.part);
    push.set_composition(place.composition);
    const auto reply = cluster_.Push(push);
    if (reply.ok() && OutcomeOf(reply) == STALE) ++seen["stale push"];
    if (Refused(place, reply.status()) || OneIn(10)) return;  // or the answer is lost
    place.to_push.pop_back();
  }

  void OnVerdict(Place& place, const Verdict& verdict) {
    ASSERT_EQ(verdict.step(), place.step);
    if (verdict.outcome() == Verdict::RETRY) {
      ++place.attempt;
      ++seen["retry"];
      return StartAttempt(place);
    }
    if (verdict.outcome() == Verdict::STALE) return GiveUp(place);
    ++place.step;
    place.attempt = 0;
    // A session looks at its pipeline between two steps.
    if (ContributorOf(place).attempt() != place.composition) return GiveUp(place);
    StartAttempt(place);
  }

  // --- Shards and views

  void MessageEvent(uint32_t shard) {
    for (ToShard& message : cluster_.leader().TakeOutbox()) {
      outbox_[message.shard].push_back(std::move(message));
    }
    std::deque<ToShard>& queue = outbox_[shard];
    if (queue.empty()) return;
    const ToShard& message = queue.front();
    Replies replies;
    absl::Status status;
    if (const auto* close = std::get_if<CloseRequest>(&message.request)) {
      auto reply = cluster_.shard(shard).Close(*close);
      status = reply.status();
      if (reply.ok()) {
        cluster_.leader().OnCloseReply(shard, *close, *reply, cluster_.now(), replies);
      }
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
    queue.pop_front();
  }

  void ViewEvent(uint32_t shard) {
    const size_t newer = views_.size() - 1 - has_view_[shard];
    if (newer == 0) return;
    has_view_[shard] += OneIn(2) ? 1 : 1 + Below(newer);
    Replies replies;
    ASSERT_EQ(cluster_.shard(shard).SetView(views_[has_view_[shard]], cluster_.now(), replies),
              absl::OkStatus());
  }

  // A stage is lost; or one comes, now and then before anybody has heard of the loss.
  void ChangeEvent() {
    const ClusterView& view = views_.back();
    const auto contributor = static_cast<uint32_t>(Below(view.contributors_size()));
    uint32_t part = 1 + static_cast<uint32_t>(Below(kStages));
    for (uint32_t other = 1; other <= kStages; ++other) {
      if (view.contributors(contributor).part_members(other) == 0) part = other;
    }
    const uint64_t former = view.contributors(contributor).part_members(part);
    if (former == 0) {
      views_.push_back(WithPart(view, contributor, part, next_id_++));
      return Launch(contributor, part);
    }
    if (changes_ >= kChanges) return;
    ++changes_;
    ++seen["lost"];
    for (const auto& place : members_) {
      // The others go on until they hear of it.
      if (place->id == former && OneIn(2)) place->over = true;
    }
    views_.push_back(WithPart(view, contributor, part, 0));
  }

  // After each verdict: every part is of the composition that its worker has said.
  void CheckValues() {
    const std::vector<Verdict>& reported = cluster_.reported();
    for (; checked_ < reported.size(); ++checked_) {
      const Verdict& verdict = reported[checked_];
      if (verdict.outcome() != Verdict::APPLY) continue;
      ASSERT_EQ(verdict.shares_size(), views_[0].contributors_size());
      for (const Share& share : verdict.shares()) {
        const auto composition = static_cast<uint64_t>(share.loss_sum());
        for (uint32_t slice = 0; slice < 3; ++slice) {
          for (const uint32_t part : kPartsOfSlice[slice]) {
            sums_[slice] += GradientOf(share.contributor(), composition, verdict.step(), part);
          }
        }
      }
    }
    const uint64_t version = cluster_.leader().version();
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      if (cluster_.shard(shard).version() != version) return;
    }
    if (version == compared_) return;
    compared_ = version;
    const char* const names[] = {"first", "last", "tied"};
    for (uint32_t slice = 0; slice < 3; ++slice) {
      ASSERT_EQ(cluster_.Values(names[slice], version), Floats(2, -sums_[slice]))
          << names[slice] << " of step " << version;
    }
  }

  bool Done() {
    for (uint32_t shard = 0; shard < cluster_.size(); ++shard) {
      if (cluster_.shard(shard).version() < kSteps) return false;
    }
    return true;
  }

  std::mt19937_64 random_;
  std::deque<ClusterView> views_;
  ShardCluster cluster_;
  std::vector<size_t> has_view_;  // by shard, index into views_
  std::vector<std::deque<ToShard>> outbox_;
  std::vector<std::unique_ptr<Place>> members_;
  uint64_t next_id_ = 200;
  int changes_ = 0;
  size_t checked_ = 0;     // verdicts
  uint64_t compared_ = 0;  // version
  std::vector<float> sums_ = {0, 0, 0};
};

TEST(PipelineProperty, AStepHasOfEachPipelineWhatOneCompositionOfItHasComputed) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    PipelineStorm storm(seed);
    storm.Run();
    if (::testing::Test::HasFailure()) return;
    for (const auto& [what, times] : storm.seen) seen[what] += times;
  }
  for (const char* what : {"lost", "aborted", "retry", "stale push", "entered a later attempt",
                           "verdict before its view"}) {
    EXPECT_GT(seen[what], 100) << what;
  }
}

}  // namespace
}  // namespace parley::testing
