#include "server/coordinator/history.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace parley {
namespace {

using Json = nlohmann::json;

CourseEvent EventOf(CourseEvent::Kind kind) {
  CourseEvent event;
  event.kind = kind;
  event.time = absl::FromUnixMillis(1'795'230'000'123);
  event.at.generation = 2;
  event.at.job_epoch = 3;
  event.at.view_epoch = 4;
  event.at.step = 7;
  event.at.data_epoch = 1;
  event.at.samples = 280;
  event.at.workers = 2;
  event.at.loss = 0.1;
  event.at.samples_per_second = 1234.5;
  return event;
}

Json LineOf(const CourseEvent& event) {
  const std::string line = HistoryLine(event);
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  return Json::parse(line, nullptr, /*allow_exceptions=*/false);
}

TEST(HistoryLine, OfAStep) {
  EXPECT_EQ(HistoryLine(EventOf(CourseEvent::Kind::kStep)),
            R"({"time":"2026-11-21T03:00:00.123Z","kind":"step","generation":2,"job_epoch":3,)"
            R"("view_epoch":4,"step":7,"data_epoch":1,"samples":280,"workers":2,"loss":0.1,)"
            R"("samples_per_second":1234.5})");
}

TEST(HistoryLine, ALossThatIsNoNumberIsNull) {
  for (const double loss : {std::nan(""), HUGE_VAL}) {
    CourseEvent event = EventOf(CourseEvent::Kind::kStep);
    event.at.loss = loss;
    EXPECT_TRUE(LineOf(event)["loss"].is_null());
  }
}

TEST(HistoryLine, OfAnEvaluationIsOfItsVersion) {
  CourseEvent event = EventOf(CourseEvent::Kind::kEvaluation);
  event.evaluation.set_version(6);
  event.evaluation.set_epoch(1);
  event.evaluation.set_samples(200);
  event.evaluation.set_loss_sum(50);
  event.evaluation.set_correct(150);
  event.evaluation.set_correct_top5(190);
  Json line = LineOf(event);
  EXPECT_EQ(line["kind"], "evaluation");
  EXPECT_EQ(line["step"], 6);
  EXPECT_EQ(line["epoch"], 1);
  EXPECT_EQ(line["test_samples"], 200);
  EXPECT_EQ(line["loss"], 0.25);
  EXPECT_FALSE(line.contains("accuracy")) << "the loss knows no classes";
  EXPECT_FALSE(line.contains("perplexity"));
  event.evaluation.set_classes(true);
  event.evaluation.set_tokens(true);
  line = LineOf(event);
  EXPECT_EQ(line["accuracy"], 0.75);
  EXPECT_EQ(line["top5"], 0.95);
  EXPECT_DOUBLE_EQ(line["perplexity"].get<double>(), std::exp(0.25));
}

TEST(HistoryLine, OfAnEvaluationIsOfWhatCounts) {
  CourseEvent event = EventOf(CourseEvent::Kind::kEvaluation);
  event.evaluation.set_samples(200);
  event.evaluation.set_left_out(100);
  event.evaluation.set_loss_sum(50);
  event.evaluation.set_correct(75);
  event.evaluation.set_correct_top5(95);
  event.evaluation.set_classes(true);
  const Json line = LineOf(event);
  EXPECT_EQ(line["test_samples"], 200);
  EXPECT_EQ(line["loss"], 0.5);
  EXPECT_EQ(line["accuracy"], 0.75);
  EXPECT_EQ(line["top5"], 0.95);
}

TEST(HistoryLine, OfACheckpoint) {
  CourseEvent event = EventOf(CourseEvent::Kind::kCheckpoint);
  event.at.checkpoint = "/out/checkpoints/step-00000005";
  event.at.checkpoint_step = 5;
  event.at.checkpoint_duration = absl::Milliseconds(1500);
  event.at.checkpoint_error = "no space";
  Json line = LineOf(event);
  EXPECT_EQ(line["outcome"], "failed");
  EXPECT_EQ(line["error"], "no space");
  EXPECT_EQ(line["step"], 7);
  event.is_whole = true;
  line = LineOf(event);
  EXPECT_EQ(line["outcome"], "whole");
  EXPECT_EQ(line["directory"], "/out/checkpoints/step-00000005");
  EXPECT_EQ(line["step"], 5);
  EXPECT_EQ(line["seconds"], 1.5);
}

TEST(HistoryLine, OfTheEndTellsItsCause) {
  CourseEvent event = EventOf(CourseEvent::Kind::kEnd);
  event.at.phase = FINISHED;
  EXPECT_EQ(LineOf(event)["outcome"], "finished");
  EXPECT_FALSE(LineOf(event).contains("cause"));
  event.at.phase = FAILED;
  event.at.cause.emplace().set_text("worker 1 is gone \xff");
  EXPECT_EQ(LineOf(event)["outcome"], "failed");
  EXPECT_EQ(LineOf(event)["cause"], "worker 1 is gone \xef\xbf\xbd") << "it was no UTF-8";
  event.at.cause->set_preempted(true);
  EXPECT_EQ(LineOf(event)["outcome"], "preempted");
}

class HistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/parley-history-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/history.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::string folder_;
  std::string path_;
  std::vector<std::string> logged_;
  Log log_{LogFormat::kText, "coordinator",
           [this](const std::string& line) { logged_.push_back(line); }};
  const CourseEvent step_ = EventOf(CourseEvent::Kind::kStep);
};

TEST_F(HistoryTest, CoordinatorsAddOneAfterTheOther) {
  History(path_, log_).Add({step_, step_});
  History(path_, log_).Add({step_});
  EXPECT_EQ(Lines(), std::vector<std::string>(3, HistoryLine(step_)));
  EXPECT_TRUE(logged_.empty());
}

TEST_F(HistoryTest, WhatADeadOneLeftOfALineIsEnded) {
  std::ofstream(path_) << R"({"time":"20)";
  History history(path_, log_);
  history.Add({step_});
  history.Add({step_});
  const std::string line = HistoryLine(step_);
  EXPECT_EQ(Lines(), (std::vector<std::string>{R"({"time":"20)", line, line}));
}

TEST_F(HistoryTest, AFullDiskIsToldOnceAndTheLinesThatFitComeAgain) {
  std::filesystem::create_symlink("/dev/full", path_);
  History history(path_, log_);
  history.Add({step_, step_});
  history.Add({step_});
  ASSERT_EQ(logged_.size(), 1U);
  EXPECT_NE(logged_[0].find(path_), std::string::npos) << logged_[0];
  EXPECT_NE(logged_[0].find("No space left"), std::string::npos) << logged_[0];
  std::filesystem::remove(path_);
  history.Add({step_});
  EXPECT_EQ(Lines(), std::vector<std::string>{HistoryLine(step_)});
  EXPECT_EQ(logged_.size(), 1U);
}

TEST_F(HistoryTest, AFolderThatIsGoneIsToldOnce) {
  History history(folder_ + "/gone/history.jsonl", log_);
  history.Add({step_});
  history.Add({step_});
  EXPECT_EQ(logged_.size(), 1U);
}

}  // namespace
}  // namespace parley
