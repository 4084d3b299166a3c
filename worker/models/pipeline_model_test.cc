#include "worker/models/pipeline_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace parley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

JobConfig Job(uint32_t stages, PipelineSchedule schedule = ONE_F_ONE_B) {
  JobConfig job;
  job.set_seed(1);
  job.mutable_cluster()->set_workers(1);
  job.mutable_cluster()->set_stages(stages);
  job.mutable_pipeline()->set_schedule(schedule);
  job.mutable_pipeline()->set_parts_per_stage(schedule == INTERLEAVED ? 2 : 1);
  Transformer& model = *job.mutable_model()->mutable_transformer();
  model.set_width(8);
  model.set_heads(2);
  model.set_hidden(16);
  model.set_layers(4);
  return job;
}

SampleLayout Tokens() {
  SampleLayout layout;
  layout.dtype = I64;
  layout.shape = {5};
  layout.classes = 11;
  return layout;
}

std::map<std::string, std::vector<uint32_t>> StagesOf(const PipelineModel& model) {
  std::map<std::string, std::vector<uint32_t>> stages;
  for (const TensorSpec& tensor : model.tensors) {
    stages[tensor.name()] = {tensor.stages().begin(), tensor.stages().end()};
  }
  return stages;
}

TEST(PipelineModel, IsCutByNameOrIntoPartsOfAboutAsMuchWork) {
  JobConfig job = Job(2);
  auto model = PlanPipeline(job, Tokens());
  ASSERT_TRUE(model.ok()) << model.status();
  // The embedding, which costs nothing, and two of the four layers; the decoder is a small one.
  EXPECT_THAT(model->first_layers, ElementsAre(0, 3));
  // Where it has many tokens it is as much work as layers are, and the embedding still none.
  SampleLayout many = Tokens();
  many.classes = 400;
  model = PlanPipeline(job, many);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->first_layers, ElementsAre(0, 5));
  job.mutable_pipeline()->add_cut_before("transformer_encoder.layers.3");
  model = PlanPipeline(job, Tokens());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->first_layers, ElementsAre(0, 4));
  EXPECT_THAT(StagesOf(*model)["transformer_encoder.layers.2.norm1.weight"], ElementsAre(0));
  EXPECT_THAT(StagesOf(*model)["transformer_encoder.layers.3.norm1.weight"], ElementsAre(1));
}

TEST(PipelineModel, AnImageCostsMoreWhereItIsLarge) {
  JobConfig job = Job(2);
  job.mutable_model()->mutable_resnet()->set_depth(18);
  job.mutable_model()->mutable_resnet()->set_classes(10);
  SampleLayout images;
  images.dtype = F32;
  images.shape = {3, 64, 64};
  const auto model = PlanPipeline(job, images);
  ASSERT_TRUE(model.ok()) << model.status();
  // By parameters it would be layer4.0, the last but two.
  EXPECT_EQ(model->layers[model->first_layers[1]].name, "layer3.0");
}

TEST(PipelineModel, ATiedEmbeddingIsOnBothEndsAndListedOnce) {
  JobConfig job = Job(2);
  job.mutable_model()->mutable_transformer()->set_tied(true);
  const auto model = PlanPipeline(job, Tokens());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(StagesOf(*model)["encoder.weight"], ElementsAre(0, 1));
  EXPECT_EQ(StagesOf(*model).size(), model->tensors.size());
  EXPECT_THAT(StagesOf(*model)["decoder.bias"], ElementsAre(1));
}

TEST(PipelineModel, InterleavedStagesHaveEveryDthPartAndChimerasTwoOppositeOnes) {
  EXPECT_THAT(PartsOfStage(Job(2, INTERLEAVED), 1), ElementsAre(1, 3));
  EXPECT_THAT(PartsOfStage(Job(4, CHIMERA), 1), ElementsAre(1, 2));
  EXPECT_THAT(PartsOfStage(Job(3, CHIMERA), 1), ElementsAre(1));
  const auto model = PlanPipeline(Job(2, CHIMERA), Tokens());
  ASSERT_TRUE(model.ok()) << model.status();
  for (const auto& [name, stages] : StagesOf(*model)) EXPECT_THAT(stages, ElementsAre(0, 1));
}

TEST(PipelineModel, NoStatisticsAreOfHalfOfTheMicrobatches) {
  JobConfig job = Job(2, CHIMERA);
  job.mutable_model()->mutable_resnet()->set_depth(18);
  job.mutable_model()->mutable_resnet()->set_classes(10);
  SampleLayout images;
  images.dtype = F32;
  images.shape = {3, 64, 64};
  const absl::Status status = PlanPipeline(job, images).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("must not be CHIMERA"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("running_mean"));
}

TEST(PipelineModel, WhatCannotBeCutSoIsRefusedWithTheNames) {
  JobConfig job = Job(2);
  job.mutable_pipeline()->add_cut_before("layer9");
  EXPECT_THAT(std::string(PlanPipeline(job, Tokens()).status().message()),
              HasSubstr("'layer9' is no layer of the model that comes behind 'encoder'"));
  job.mutable_pipeline()->set_cut_before(0, "encoder");  // the first part would be empty
  EXPECT_TRUE(absl::IsInvalidArgument(PlanPipeline(job, Tokens()).status()));
  EXPECT_THAT(std::string(PlanPipeline(Job(7), Tokens()).status().message()),
              HasSubstr("too few for 7 parts"));
}

}  // namespace
}  // namespace parley
