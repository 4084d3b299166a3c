#include "server/pipeline_stage/schedule/evaluation_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace parley {
namespace {

// Stages that do a turn in each unit of time, as soon as its inputs have come; and the worker, that
// feeds as it does. Messages take no time.
class Played {
 public:
  Played(uint32_t stages, uint32_t parts_per_stage, uint32_t batches)
      : fed_(2 * stages), last_part_(stages * parts_per_stage - 1) {
    for (uint32_t stage = 0; stage < stages; ++stage) {
      std::vector<uint32_t> parts;
      for (uint32_t i = 0; i < parts_per_stage; ++i) parts.push_back(i * stages + stage);
      orders_.emplace_back(parts, stages, batches, fed_);
    }
    next_.resize(stages);
    last_.resize(stages);
    while (results_ < batches && Tick()) ++time_;
  }

  uint32_t time() const { return time_; }
  uint32_t results() const { return results_; }
  const std::map<std::pair<uint32_t, uint32_t>, uint32_t>& done() const { return done_; }

 private:
  // False: they wait for each other for ever.
  bool Tick() {
    std::vector<EvaluationTurn> done;
    for (size_t stage = 0; stage < orders_.size(); ++stage) {
      if (next_[stage] == orders_[stage].size()) continue;
      const EvaluationTurn turn = orders_[stage][next_[stage]];
      const bool came = turn.part == 0 ? turn.batch < results_ + fed_
                                       : done_.count({turn.part - 1, turn.batch}) > 0;
      if (!came) continue;
      ExpectNothingIsReadOfWhatIsOver(stage, turn);
      ++next_[stage];
      done.push_back(turn);
    }
    for (const EvaluationTurn& turn : done) {
      EXPECT_EQ((done_[{turn.part, turn.batch}]++), 0U) << "once";
      if (turn.part != last_part_) continue;
      EXPECT_EQ(turn.batch, results_) << "in order";
      ++results_;
    }
    return !done.empty();
  }

  void ExpectNothingIsReadOfWhatIsOver(size_t stage, const EvaluationTurn& turn) {
    EXPECT_GE(turn.group, last_[stage].group);
    EXPECT_LE(turn.group, turn.batch);
    EXPECT_LE(turn.first_read, turn.group);
    // What is over has given its result; and nothing stays much longer than it must.
    EXPECT_LE(turn.first_read, results_);
    EXPECT_LT(turn.batch, turn.first_read + fed_ + orders_.size());
    if (turn.first_read > 0) {
      EXPECT_GE(results_, turn.batch - fed_ + 1);
    }
    last_[stage] = turn;
  }

  const uint32_t fed_;
  const uint32_t last_part_;
  std::vector<EvaluationSchedule> orders_;
  std::vector<uint64_t> next_;
  std::vector<EvaluationTurn> last_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> done_;  // by part and batch
  uint32_t results_ = 0;
  uint32_t time_ = 0;
};

TEST(EvaluationSchedule, StagesWithSeveralPartsWaitForTheFirstBatchOnly) {
  for (uint32_t stages = 1; stages <= 5; ++stages) {
    for (uint32_t parts = 1; parts <= 3; ++parts) {
      for (uint32_t batches = 1; batches <= 23; ++batches) {
        SCOPED_TRACE(testing::Message()
                     << stages << " stages, " << parts << " parts, " << batches << " batches");
        const Played played(stages, parts, batches);
        EXPECT_EQ(played.results(), batches);
        EXPECT_EQ(played.done().size(), stages * parts * batches);
        // In a smaller last group each part but the first waits for those that are missing.
        const uint32_t uneven = batches % stages == 0 ? 0 : stages - batches % stages;
        EXPECT_EQ(played.time(), parts * batches + (stages - 1) + (parts - 1) * uneven);
      }
    }
  }
}

TEST(EvaluationSchedule, AStageWithOnePartGoesBatchByBatch) {
  const EvaluationSchedule order({1}, 3, 20, 6);
  ASSERT_EQ(order.size(), 20U);
  for (uint32_t i = 0; i < 20; ++i) {
    const EvaluationTurn turn = order[i];
    EXPECT_EQ(turn.part, 1U);
    EXPECT_EQ(turn.batch, i);
    EXPECT_EQ(turn.group, i);
    EXPECT_EQ(turn.first_read, i < 6 ? 0 : i - 5);
  }
}

}  // namespace
}  // namespace parley
