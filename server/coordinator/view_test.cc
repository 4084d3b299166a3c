#include "server/coordinator/view.h"

#include <gtest/gtest.h>

#include <random>

#include "common/job/data_division.h"

namespace parley {
namespace {

JobConfig Job(uint64_t epochs, uint32_t workers, uint32_t batch, uint32_t accumulate) {
  JobConfig job;
  job.set_epochs(epochs);
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_shards(1);
  job.mutable_data()->set_batch(batch);
  job.set_accumulate(accumulate);
  return job;
}

TEST(ViewTest, TheLastStepOfAFreshJobIsThatOfThePlan) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const JobConfig job =
        Job(1 + random() % 5, 1 + random() % 5, 1 + random() % 40, 1 + random() % 3);
    const uint64_t samples = 1 + random() % 1000;
    EXPECT_EQ(LastStep(job, {}, 0, samples, job.cluster().workers()), TotalSteps(job, samples))
        << "seed " << seed;
  }
}

TEST(ViewTest, TheLastStepIsReachedByDividingTheDataFromAnyPosition) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const JobConfig job =
        Job(1 + random() % 3, 1 + random() % 5, 1 + random() % 40, 1 + random() % 3);
    const uint64_t samples = 1 + random() % 500;
    DataPosition position;
    position.set_epoch(random() % 4);
    if (samples > 1 && random() % 2 == 0) {
      const uint64_t begin = random() % (samples - 1);
      position.add_used()->set_begin(begin);
      position.mutable_used(0)->set_end(begin + 1 + random() % (samples - 1 - begin));
    }
    const uint64_t version = random() % 100;
    const uint64_t last = LastStep(job, position, version, samples, job.cluster().workers());
    uint64_t step = version;
    while (!IsDone(job, position, step)) {
      ++step;
      std::vector<SampleRange> all;
      for (const auto& ranges :
           Divide(position, samples, job.cluster().workers(), NominalSamples(job))) {
        all.insert(all.end(), ranges.begin(), ranges.end());
      }
      ASSERT_TRUE(MarkUsed(position, position.epoch(), all, samples).ok()) << "seed " << seed;
    }
    EXPECT_EQ(step, last) << "seed " << seed;
  }
}

TEST(ViewTest, AJobOfStepsEndsWithThatStep) {
  JobConfig job = Job(0, 2, 10, 1);
  job.clear_epochs();
  job.set_steps(123);
  EXPECT_EQ(LastStep(job, {}, 5, 1000, 1), 123u);
}

TEST(ViewTest, ADataPositionBeyondTheSetIsRefused) {
  RegisterModelRequest model;
  TensorSpec* tensor = model.add_tensors();
  tensor->set_name("w");
  tensor->set_dtype(F32);
  model.set_training_samples(100);
  StartPoint start;
  start.folder = "/c";
  *start.manifest.add_tensors() = *tensor;
  EXPECT_TRUE(CheckStart(start, model).ok());
  SampleRange* used = start.manifest.mutable_data_position()->add_used();
  used->set_begin(50);
  used->set_end(101);
  EXPECT_EQ(CheckStart(start, model).code(), absl::StatusCode::kInvalidArgument);
  used->set_end(100);
  EXPECT_TRUE(CheckStart(start, model).ok());
  model.mutable_tensors(0)->set_buffer(true);
  EXPECT_EQ(CheckStart(start, model).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ViewTest, WeightsAreComparedByNameWhateverTheOrder) {
  RegisterModelRequest model;
  StartPoint start;
  start.folder = "/w/model.safetensors";
  start.weights.emplace().path = start.folder;
  for (const char* name : {"a", "b"}) {
    TensorSpec* tensor = model.add_tensors();
    tensor->set_name(name);
    tensor->set_dtype(F32);
    start.weights->tensors.insert(start.weights->tensors.begin(), *tensor);
  }
  EXPECT_TRUE(CheckStart(start, model).ok());
  model.mutable_tensors(1)->set_name("c");
  const absl::Status status = CheckStart(start, model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* word : {"/w/model.safetensors", "'c' F32", "'b' F32"}) {
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace parley
