#include "server/coordinator/event_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace parley {
namespace {

using tensorboard::Event;

CourseEvent StepOf(uint64_t step) {
  CourseEvent event;
  event.kind = CourseEvent::Kind::kStep;
  event.time = absl::FromUnixMillis(1'795'230'000'250);
  event.at.step = step;
  event.at.loss = 0.5;
  event.at.samples_per_second = 1000;
  event.at.workers = 2;
  return event;
}

std::map<std::string, float> ScalarsOf(const Event& event) {
  std::map<std::string, float> scalars;
  for (const auto& value : event.summary().value()) scalars[value.tag()] = value.simple_value();
  return scalars;
}

// Little endian.
uint64_t NumberAt(const std::string& bytes, size_t begin, size_t size) {
  uint64_t number = 0;
  for (size_t i = size; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes.at(begin + i));
  }
  return number;
}

// As a reader that does not look at the sums.
std::vector<Event> EventsOf(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = content.str();
  std::vector<Event> events;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = NumberAt(bytes, at, 8);
    EXPECT_TRUE(events.emplace_back().ParseFromString(bytes.substr(at + 12, size)));
    at += 16 + size;
  }
  return events;
}

// The sums are those that TensorBoard's own reader computes (masked_crc32c).
TEST(TfRecord, HasLengthAndSums) {
  const std::string record = TfRecord("123456789");
  ASSERT_EQ(record.size(), 8U + 4 + 9 + 4);
  EXPECT_EQ(NumberAt(record, 0, 8), 9U);
  EXPECT_EQ(record.substr(12, 9), "123456789");
  EXPECT_EQ(NumberAt(record, 8, 4), 0x3971f937U);
  EXPECT_EQ(NumberAt(record, 21, 4), 0xc78ab0e5U);
}

TEST(ToTensorboard, AStep) {
  const auto event = ToTensorboard(StepOf(7));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->step(), 7);
  EXPECT_EQ(event->wall_time(), 1795230000.25);
  EXPECT_EQ(ScalarsOf(*event),
            (std::map<std::string, float>{
                {"train/loss", 0.5F}, {"train/samples_per_second", 1000}, {"workers", 2}}));
}

TEST(ToTensorboard, ANoughtIsAPointToo) {
  CourseEvent step = StepOf(7);
  step.at.loss = 0;
  Event read;
  ASSERT_TRUE(read.ParseFromString(ToTensorboard(step)->SerializeAsString()));
  ASSERT_EQ(read.summary().value_size(), 3);
  EXPECT_TRUE(read.summary().value(0).has_simple_value());
}

TEST(ToTensorboard, AnEvaluation) {
  CourseEvent event;
  event.kind = CourseEvent::Kind::kEvaluation;
  event.at.step = 9;
  event.evaluation.set_version(6);
  event.evaluation.set_samples(4);
  event.evaluation.set_loss_sum(1);
  event.evaluation.set_correct(2);
  event.evaluation.set_correct_top5(3);
  auto shown = ToTensorboard(event);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->step(), 6) << "of the version, not of the time";
  EXPECT_EQ(ScalarsOf(*shown), (std::map<std::string, float>{{"test/loss", 0.25F}}));
  event.evaluation.set_classes(true);
  shown = ToTensorboard(event);
  EXPECT_EQ(ScalarsOf(*shown),
            (std::map<std::string, float>{
                {"test/loss", 0.25F}, {"test/accuracy", 0.5F}, {"test/top5", 0.75F}}));
  event.evaluation.set_samples(8);
  event.evaluation.set_left_out(4);
  EXPECT_EQ(ScalarsOf(*ToTensorboard(event)), ScalarsOf(*shown)) << "of what counts";
}

TEST(ToTensorboard, WhoGoesBackTakesBackWhatCameAfter) {
  CourseEvent event;
  event.kind = CourseEvent::Kind::kView;
  event.at.start_step = 5;
  EXPECT_FALSE(ToTensorboard(event)) << "others take part, that is all";
  event.went_back = true;
  const auto shown = ToTensorboard(event);
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->step(), 6);
  EXPECT_EQ(shown->session_log().status(), tensorboard::SessionLog::START);
}

class EventFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/parley-events-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The files of `board`, in TensorBoard's order.
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/board")) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  const std::unique_ptr<FileSystem> files_ = PosixFileSystem();
  std::string folder_;
  std::vector<std::string> logged_;
  Log log_{LogFormat::kText, "coordinator",
           [this](const std::string& line) { logged_.push_back(line); }};
};

TEST_F(EventFileTest, BeginsWithItsVersion) {
  EventFile file(*files_, folder_ + "/board", log_);
  file.Add({StepOf(1), StepOf(2)});
  file.Add({StepOf(3)});
  ASSERT_EQ(Paths().size(), 1U);
  EXPECT_EQ(std::filesystem::path(Paths()[0])
                .filename()
                .string()
                .rfind("events.out.tfevents.1795230000.", 0),
            0U)
      << Paths()[0];
  const auto events = EventsOf(Paths()[0]);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  for (int step = 1; step <= 3; ++step) EXPECT_EQ(events[step].step(), step);
}

TEST_F(EventFileTest, NothingToShowMakesNoFile) {
  EventFile file(*files_, folder_ + "/board", log_);
  file.Add({CourseEvent()});
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/board"));
}

TEST_F(EventFileTest, ACoordinatorBeginsAFileOfItsOwnBehindTheOthers) {
  // All within one second.
  for (uint64_t step = 1; step <= 12; ++step) {
    EventFile(*files_, folder_ + "/board", log_).Add({StepOf(step)});
  }
  const auto paths = Paths();
  ASSERT_EQ(paths.size(), 12U);
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(EventsOf(paths[i]).at(1).step(), static_cast<int64_t>(i + 1)) << paths[i];
  }
}

TEST_F(EventFileTest, AFolderThatCannotBeMadeIsToldOnce) {
  std::ofstream(folder_ + "/file") << "x";
  EventFile file(*files_, folder_ + "/file/board", log_);
  file.Add({StepOf(1)});
  file.Add({StepOf(2)});
  ASSERT_EQ(logged_.size(), 1U);
  EXPECT_NE(logged_[0].find(folder_ + "/file"), std::string::npos) << logged_[0];
}

}  // namespace
}  // namespace parley
