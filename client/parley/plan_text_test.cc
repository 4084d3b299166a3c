#include "client/parley/plan_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "client/parley/memory_plan.h"
#include "server/coordinator/placement.h"

namespace parley {
namespace {

// 9 steps of an epoch: 1000 samples by 2 workers with batch 60.
JobConfig Job() {
  JobConfig job;
  job.set_name("small");
  job.mutable_data()->set_batch(60);
  job.set_accumulate(1);
  job.mutable_optimizer()->mutable_adam()->set_rate(0.001);
  job.mutable_consistency()->mutable_sync();
  job.mutable_cluster()->set_workers(2);
  job.mutable_cluster()->set_shards(2);
  job.set_epochs(3);
  return job;
}

TensorSpec Tensor(const std::string& name, std::initializer_list<int64_t> shape, bool buffer) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(F32);
  tensor.set_buffer(buffer);
  for (const int64_t size : shape) tensor.add_shape(size);
  return tensor;
}

ModelDescription Model() {
  return {.tensors = {Tensor("fc.weight", {1024, 1024}, false), Tensor("fc.bias", {1024}, false),
                      Tensor("bn.mean", {262144}, true)},
          .training_samples = 1000,
          .test_samples = 200};
}

void ExpectWords(const std::string& text, const std::vector<std::string>& all) {
  for (const std::string& words : all) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in\n" << text;
  }
}

TEST(PlanText, OfAProgramOfOnesOwnSaysWhatCanBeSaidWithoutItsModel) {
  ExpectWords(OwnProgramPlanText(Job()),
              {"2 of parley-shard, 2 of a program of your own\n", "samples of a step    120 ",
               "model and data       are the program's own, and so not looked at"});
}

TEST(PlanText, ShowsStepsAndWhereEverySliceLies) {
  const auto text = PlanText(Job(), Model());
  ASSERT_TRUE(text.ok()) << text.status();
  ExpectWords(*text,
              {"samples of a step    120 ", "steps of an epoch    9\n", "steps in all         27\n",
               "1049600 in 3 tensors", "fc.weight@0:262144 ", "fc.weight@786432:1048576 ",
               "fc.bias ", "bn.mean ", "shard 0: ", "shard 1: "});
}

TEST(PlanText, ShowsWhatTheScheduleMakesOfTheRate) {
  JobConfig job = Job();
  EXPECT_EQ(PlanText(job, Model())->find("learning rate"), std::string::npos);
  job.mutable_data()->set_batch(50);  // 10 steps of an epoch
  job.set_epochs(4);
  job.mutable_learning_rate()->set_warmup_epochs(0.5);
  Milestones& milestones = *job.mutable_learning_rate()->mutable_milestones();
  milestones.add_epochs(1);
  milestones.add_epochs(2.5);
  milestones.set_gamma(0.1);
  ExpectWords(*PlanText(job, Model()),
              {"learning rate        x 0.2 in step 1, 1 after 1/4 of the steps, 0.1 after 1/2, "
               "0.01 after 3/4, 0.01 in the last one\n"});
}

TEST(PlanText, ShowsTheNodeGroupsAndWhatTheirWorkersSend) {
  EXPECT_EQ(PlanText(Job(), Model())->find("node groups"), std::string::npos);
  JobConfig job = Job();
  job.mutable_cluster()->set_workers(4);
  job.mutable_cluster()->set_group(2);
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  // Four slices of 1 MiB, one of 4 KiB, and a buffer of 1 MiB, which is rank 0's.
  ExpectWords(
      *PlanText(job, Model()),
      {"node groups          2 of 2 workers, each on one host; a worker sends 2.00 MiB to 3.00 "
       "MiB in a step",
       "samples of a step    240 (4 workers"});
  // A worker has a copy of what it hands round.
  EXPECT_EQ(PlanCompute(job, Model(), {}).remote,
            PlanCompute(Job(), Model(), {}).remote + PlanCompute(Job(), Model(), {}).starting / 4);
  // A contribution of each group is kept apart, not of each worker.
  EXPECT_EQ(PlanShards(job, Model(), *Place(Model().tensors, 2))[0].step_remote,
            PlanShards(
                [] {
                  JobConfig alone = Job();
                  alone.mutable_consistency()->mutable_sync()->set_deterministic(true);
                  return alone;
                }(),
                Model(), *Place(Model().tensors, 2))[0]
                .step_remote);
}

TEST(PlanText, CountsWhatTheJobsOptionsAskAShardToKeep) {
  JobConfig job = Job();
  job.mutable_cluster()->set_shards(1);
  // 1,049,600 parameters and 262,144 elements of a buffer, 4 bytes each; Adam has two states.
  // Parameters are added up where the workers lend them; of the buffer each worker's value waits.
  ExpectWords(*PlanText(job, Model()),
              {"20.0 MiB: values 5.00 MiB, evaluation 5.00 MiB, optimizer 8.01 MiB, "
               "open step 2.00 MiB\n",
               "24.0 MiB: with workers on other machines, open step 6.00 MiB\n"});
  job.mutable_checkpoint()->set_every_steps(10);
  ExpectWords(*PlanText(job, Model()), {"33.0 MiB: ", "checkpoint 13.0 MiB"});
  job.mutable_checkpoint()->clear_every_steps();
  job.mutable_optimizer()->set_clip_norm(1);
  ExpectWords(*PlanText(job, Model()), {"24.0 MiB: ", "optimizer 8.01 MiB, open step 6.00 MiB\n"});
  job.mutable_optimizer()->clear_clip_norm();
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  ExpectWords(*PlanText(job, Model()), {"other machines, open step 14.0 MiB\n"});
  job.mutable_consistency()->mutable_sync()->set_deterministic(false);
  job.mutable_consistency()->mutable_sync()->set_backup(1);
  ExpectWords(*PlanText(job, Model()),
              {"what workers read 4.00 MiB", "other machines, open step 14.0 MiB\n",
               "samples of a step    60 (2 workers, 1 of them backup", "steps of an epoch    17\n",
               "steps in all         51\n"});
  job.mutable_consistency()->mutable_async()->set_delay_compensation(0.1);
  job.mutable_cluster()->set_workers(3);
  ExpectWords(*PlanText(job, Model()), {"what workers read 12.0 MiB", "open step 7.00 MiB\n"});
}

TEST(PlanText, AWorkerHasItsLargestGradientTwiceAndNoValuesThatShardsHereShow) {
  // 5.00 MiB of values and as much of gradients; 4 MiB of them one tensor's. 4 KiB are too small.
  ExpectWords(*PlanText(Job(), Model()),
              {"each worker  9.01 MiB: ", " 14.0 MiB: with shards on other machines\n",
               " 10.0 MiB: while it starts\n"});
  JobConfig job = Job();
  job.mutable_consistency()->mutable_bounded()->set_bound(1);
  ExpectWords(*PlanText(job, Model()), {"each worker  14.0 MiB: "});
}

TEST(PlanText, AModelThatCannotBePlacedIsRefused) { EXPECT_FALSE(PlanText(Job(), {}).ok()); }

}  // namespace
}  // namespace parley
