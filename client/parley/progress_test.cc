#include "client/parley/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "client/parley/final_table.h"
#include "client/parley/units.h"

namespace parley {
namespace {

GetStatusReply Training(uint64_t step) {
  GetStatusReply status;
  status.set_job("small");
  status.set_phase(TRAINING);
  status.set_step(step);
  status.set_total_steps(1500);
  status.set_data_epoch(step / 300);
  status.set_epochs(5);
  status.set_loss(0.41234);
  status.set_samples_per_second(1923.4);
  return status;
}

Evaluation Evaluated(uint64_t epoch, uint64_t correct) {
  Evaluation evaluation;
  evaluation.set_epoch(epoch);
  evaluation.set_version(epoch * 300);
  evaluation.set_samples(10000);
  evaluation.set_loss_sum(2901);
  evaluation.set_correct(correct);
  evaluation.set_correct_top5(9975);
  evaluation.set_classes(true);
  return evaluation;
}

TEST(ProgressLine, TellsEpochStepLossRateAndTimeLeft) {
  EXPECT_EQ(ProgressLine(Training(312), absl::Seconds(83)),
            "epoch 2/5  step 312/1500  loss 0.4123  1923 samples/s  1:23 left");
  // After the last step the data epoch is the one that would come next.
  EXPECT_EQ(ProgressLine(Training(1500), std::nullopt),
            "epoch 5/5  step 1500/1500  loss 0.4123  1923 samples/s");
}

TEST(ProgressLine, TellsNoEpochsForAJobThatCountsStepsAndNoLossBeforeTheFirst) {
  GetStatusReply status = Training(0);
  status.set_epochs(0);
  EXPECT_EQ(ProgressLine(status, std::nullopt), "step 0/1500");
}

TEST(ProgressLine, TellsWhatIsMissing) {
  GetStatusReply status;
  status.set_phase(GATHERING);
  status.set_what_is_missing("worker 1 has not joined");
  EXPECT_EQ(ProgressLine(status, std::nullopt), "members join: worker 1 has not joined");
}

TEST(ProgressBar, FillsWithTheStepsAndFitsTheTerminal) {
  EXPECT_EQ(ProgressBar(Training(750), std::nullopt, 200).substr(0, 33),
            "[############------------]  50%  ");
  EXPECT_EQ(ProgressBar(Training(1500), std::nullopt, 200).substr(0, 33),
            "[########################] 100%  ");
  EXPECT_EQ(ProgressBar(Training(1499), std::nullopt, 200).substr(27, 4), " 99%");
  // On 80 columns the bar gets shorter, and nothing is cut.
  EXPECT_EQ(ProgressBar(Training(750), absl::Seconds(83), 80),
            "[###----]  50%  epoch 3/5  step 750/1500  loss 0.4123  1923 samples/s  1:23 left");
  for (int columns = 0; columns < 120; ++columns) {
    EXPECT_LE(ProgressBar(Training(750), absl::Hours(3), columns).size(),
              static_cast<size_t>(columns));
  }
}

TEST(TimeLeft, FollowsTheRateOfTheLastHalfMinute) {
  TimeLeft left;
  EXPECT_EQ(left.Get(), std::nullopt);
  absl::Time now = absl::FromUnixSeconds(1000);
  uint64_t step = 1;
  for (int i = 0; i < 100; ++i, step += 1, now += absl::Seconds(1)) left.See(Training(step), now);
  EXPECT_EQ(*left.Get(), absl::Seconds(1500 - 100));
  // Ten times as fast from now on: the slow time is forgotten.
  for (int i = 0; i < 60; ++i, step += 10, now += absl::Seconds(1)) left.See(Training(step), now);
  EXPECT_LT(*left.Get(), absl::Seconds((1500 - 690) / 10 + 1));
}

TEST(EvaluationLine, LeavesOutAccuracyWhereThereAreNoClasses) {
  EXPECT_EQ(EvaluationLine(Evaluated(2, 8812)),
            "epoch 2  step 600  accuracy 0.8812  top-5 0.9975  loss 0.2901");
  Evaluation evaluation = Evaluated(2, 0);
  evaluation.set_classes(false);
  EXPECT_EQ(EvaluationLine(evaluation), "epoch 2  step 600  loss 0.2901");
  evaluation.set_tokens(true);
  EXPECT_EQ(EvaluationLine(evaluation), "epoch 2  step 600  perplexity 1.34  loss 0.2901");
}

TEST(EvaluationLine, IsOfWhatCounts) {
  Evaluation evaluation = Evaluated(2, 4000);
  evaluation.set_correct_top5(4500);
  evaluation.set_left_out(5000);
  EXPECT_EQ(EvaluationLine(evaluation),
            "epoch 2  step 600  accuracy 0.8000  top-5 0.9000  loss 0.5802");
  evaluation.set_left_out(10000);
  EXPECT_EQ(EvaluationLine(evaluation), "epoch 2  step 600  accuracy nan  top-5 nan  loss nan");
}

TEST(FinalTable, EndsWithTheAccuracyOfTheLastEvaluationAndNamesAllPlaces) {
  GetStatusReply status = Training(1500);
  status.set_phase(FINISHED);
  *status.add_evaluations() = Evaluated(1, 8531);
  *status.add_evaluations() = Evaluated(2, 8975);
  status.set_samples(300000);
  status.set_seconds_training(150);
  PhaseSeconds* forward = status.add_phase_seconds();
  forward->set_phase("forward");
  forward->set_seconds(90);
  const std::string table =
      FinalTable(status, 2, /*own_program=*/false,
                 {"/o/job.textproto", "/o/targets.json", "/o/*.log", "/o/checkpoints/step-1500"});
  // What scripts look for (tests/process/export_test.py).
  const std::regex accuracy("accuracy\\D*(0\\.\\d+|1\\.0+)");
  std::string last;
  for (std::sregex_iterator it(table.begin(), table.end(), accuracy), end; it != end; ++it) {
    last = (*it)[1];
  }
  EXPECT_EQ(last, "0.8975") << table;
  for (const char* words :
       {"300000 samples in 150.0 s: 2000 samples/s", "forward 45.0", "/o/job.textproto",
        "/o/targets.json", "/o/*.log", "/o/checkpoints/step-1500"}) {
    EXPECT_NE(table.find(words), std::string::npos) << words << " is not in\n" << table;
  }
}

TEST(FinalTable, SaysWhyThereIsNoEvaluation) {
  EXPECT_THAT(FinalTable(Training(1500), 2, /*own_program=*/false, {}),
              testing::HasSubstr("none: the job has no test set"));
  EXPECT_THAT(FinalTable(Training(1500), 2, /*own_program=*/true, {}),
              testing::HasSubstr("none: the program has reported none"));
}

TEST(Units, AreForPeople) {
  EXPECT_EQ(DurationText(absl::Seconds(-3)), "0 s");
  EXPECT_EQ(DurationText(absl::Seconds(42)), "42 s");
  EXPECT_EQ(DurationText(absl::Seconds(185)), "3:05");
  EXPECT_EQ(DurationText(absl::Seconds(7385)), "2:03:05");
  EXPECT_EQ(BytesText(812), "812 B");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(BytesText(622740), "608 KiB");
}

}  // namespace
}  // namespace parley
