#include "client/parley/pipeline_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parley/pipeline_plan.h"
#include "client/parley/plan_text.h"
#include "common/file_system.h"
#include "common/memory_file_system.h"

namespace parley {
namespace {

// Two pipelines of 4 stages; 16 microbatches of 3 samples.
JobConfig Job() {
  JobConfig job;
  job.set_name("piped");
  job.mutable_data()->set_batch(3);
  job.set_accumulate(16);
  job.mutable_optimizer()->mutable_adam()->set_rate(0.001);
  job.mutable_consistency()->mutable_sync();
  job.mutable_cluster()->set_workers(2);
  job.mutable_cluster()->set_shards(1);
  job.mutable_cluster()->set_stages(4);
  job.mutable_pipeline()->set_schedule(ONE_F_ONE_B);
  job.mutable_pipeline()->set_parts_per_stage(1);
  job.set_epochs(1);
  return job;
}

TensorSpec Tensor(const std::string& name, int64_t elements,
                  std::initializer_list<uint32_t> stages) {
  TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(F32);
  tensor.add_shape(elements);
  for (const uint32_t stage : stages) tensor.add_stages(stage);
  return tensor;
}

// "tied" is on the first and the last stage; stage 2 takes most. So many parts, the first one with
// three layers.
ModelDescription Model(uint32_t parts = 4) {
  ModelDescription model;
  model.tensors = {Tensor("tied", 100, {0, 3}), Tensor("b", 200, {1}), Tensor("c", 262144, {2}),
                   Tensor("d", 1000, {2}), Tensor("mean", 50, {1})};
  model.tensors.back().set_buffer(true);
  model.training_samples = 960;
  model.parts.push_back({"embedding", "norm", "layer.0"});
  for (uint32_t part = 1; part < parts; ++part) model.parts.push_back({absl::StrCat("l", part)});
  return model;
}

void PutOnFirstStage(ModelDescription& model) {
  for (TensorSpec& tensor : model.tensors) {
    tensor.clear_stages();
    tensor.add_stages(0);
  }
}

std::string Text(const JobConfig& job, const ModelDescription& model) {
  const auto text = PlanText(job, model);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

void ExpectWords(const std::string& text, const std::vector<std::string>& all) {
  for (const std::string& words : all) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in\n" << text;
  }
}

TEST(PipelineText, ShowsTheScheduleAndWhatEachStageHas) {
  // 1F1B's bubble is (D - 1) / (N + D - 1), and stage s keeps D - s microbatches.
  ExpectWords(Text(Job(), Model()),
              {"2 of parley-worker, 8 of parley-stage (4 for each worker)\n",
               "schedule             1f1b; microbatches of a step: 16, of 3 samples each\n",
               "predicted bubble     0.158 with equal stages",
               "whose activations a stage has at once, counted",
               "      0          100         400 B     4  0: embedding .. layer.0\n",
               "      1          200        1000 B     3  1: l1\n",
               "      2       263144      1.00 MiB     2  2: l2\n",
               "      3          100         400 B     1  3: l3\n"});
}

TEST(PipelineText, AStageWithSeveralPartsHasALineForEach) {
  JobConfig job = Job();
  job.mutable_pipeline()->set_schedule(INTERLEAVED);
  job.mutable_pipeline()->set_parts_per_stage(2);
  // (D - 1) / v forwards and backwards are waited for, of 16 and so many: 1.5 / 17.5.
  ExpectWords(Text(job, Model(8)),
              {"schedule             interleaved; ", "bubble     0.086 with",
               "  0: embedding .. layer.0\n                                        "
               "  4: l4\n"});
  // A group of 7 needs 4 credits: with one the bubble would be 0.263, not 1.5 / 8.5.
  job.set_accumulate(7);
  ExpectWords(Text(job, Model(8)), {"bubble     0.176 with"});
  job = Job();
  job.mutable_pipeline()->set_schedule(CHIMERA);
  job.set_accumulate(4);
  // 4 forwards and backwards take 12, and 2 backwards are waited for: 4 / 16.
  ExpectWords(Text(job, Model()), {"schedule             chimera; ", "bubble     0.250 with",
                                   "  1: l1\n                                          2: l2\n"});
}

TEST(PipelineText, ForwardsThatAreComputedAgainMakeBackwardsLonger) {
  JobConfig job = Job();
  job.mutable_pipeline()->set_schedule(ZERO_BUBBLE);
  // (D - 1)I is waited for: 3 of 48 + 3, and with the forward in it 6 of 64 + 6.
  ExpectWords(Text(job, Model()), {"bubble     0.059 with"});
  job.mutable_pipeline()->set_recompute(true);
  ExpectWords(Text(job, Model()),
              {"bubble     0.086 with", "whose inputs a stage has at once, counted"});
}

TEST(PipelineText, WhereStepsOverlapThereIsHardlyABubbleAndAStageKeepsMoreOfItsWeights) {
  JobConfig job = Job();
  job.mutable_pipeline()->set_schedule(TWO_BUFFER_WEIGHTS);
  // Of 32 steps of 16 microbatches one behind the other: 3 of 515.
  ExpectWords(Text(job, Model()),
              {"schedule             2bw; microbatches of a step: 16, of 3 samples each\n",
               "weights              1 step old when a step is computed", "bubble     0.006 with",
               "  stage 2      5.02 MiB: the largest of a pipeline: gradients, the largest of them "
               "once more, parameters, and 3 copies of them for steps that overlap; activations"});
  job.mutable_pipeline()->set_schedule(PIPEDREAM);
  job.set_accumulate(1);
  ExpectWords(Text(job, Model()), {"schedule             pipedream; microbatches of a step: 1, ",
                                   "weights              4 steps old when"});
}

TEST(PipelineText, TheLargestStageHasItsOwnTensorsTwiceAndWorkersHaveNone) {
  // 1 MiB and 4000 bytes, of values and of gradients, the larger one's gradient once more; one
  // slice is shown.
  const std::string text = Text(Job(), Model());
  ExpectWords(text, {"  stage 2      2.01 MiB: the largest of a pipeline: gradients, ",
                     " 3.01 MiB: with shards on other machines\n", "workers have no parameters"});
  EXPECT_EQ(text.find("each worker "), std::string::npos) << text;
}

TEST(PipelineText, ATensorOfTwoStagesHasAGradientOfEach) {
  JobConfig job = Job();
  job.mutable_consistency()->mutable_sync()->set_deterministic(true);
  ModelDescription model = Model();
  PutOnFirstStage(model);
  // 263,444 elements by 2 workers and their sum, and the buffer of each worker.
  ExpectWords(Text(job, model), {"with stages on other machines, open step 3.02 MiB\n"});
  for (TensorSpec& tensor : model.tensors) tensor.add_stages(1);
  ExpectWords(Text(job, model), {"with stages on other machines, open step 5.03 MiB\n"});
}

TEST(PipelineText, AScheduleThatCannotRunIsRefusedWithTheReason) {
  JobConfig job = Job();
  job.set_accumulate(1 << 20);
  const auto text = PlanText(job, Model());
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(text.status().message().find("cannot run: 4 stages with 1 parts each and 1048576"),
            absl::string_view::npos)
      << text.status();
}

TEST(PipelineText, ADescriptionOfOtherPartsOrStagesIsRefused) {
  EXPECT_FALSE(PlanText(Job(), Model(3)).ok());
  ModelDescription model = Model();
  model.tensors[1].set_stages(0, 4);
  EXPECT_FALSE(PlanText(Job(), model).ok());
  model.tensors[1].clear_stages();
  EXPECT_FALSE(PlanText(Job(), model).ok());
}

TEST(PipelineText, MeasuredLayersSayWhichCutBalancesThem) {
  JobConfig job = Job();
  job.mutable_cluster()->set_stages(2);
  ModelDescription model = Model(2);
  PutOnFirstStage(model);
  // Layers of 3, 3, 3 and 9 ms forward, twice that backward; cut before the last one.
  for (const double forward : {0.003, 0.003, 0.003, 0.009}) {
    model.costs.push_back({forward, 2 * forward, 4096});
  }
  // Two stages of 27 ms for each of 16 microbatches: 17 * 27 ms, one seventeenth of it a bubble.
  ExpectWords(Text(job, model),
              {"predicted bubble     0.059 with the layers as measured here, 0.459 s a step",
               "balanced cut         as it is\n", "layers, as measured here with a microbatch of 3",
               "    3.00 ms   6.00 ms      4.00 KiB          0 B  norm\n"});
  // A second stage half as fast has half as much to do.
  job.mutable_pipeline()->add_stage_speed(2);
  job.mutable_pipeline()->add_stage_speed(1);
  model.costs = {{0.004, 0.008, 4096}, {0.004, 0.008, 1}, {0.004, 0.008, 1}, {0.006, 0.012, 1}};
  ExpectWords(Text(job, model), {"balanced cut         as it is\n"});
  model.costs[3] = {0.001, 0.002, 1};
  ExpectWords(Text(job, model), {"0.252 s a step, with pipeline { cut_before: \"layer.0\" }"});
  MemoryFileSystem files;
  ASSERT_TRUE(WriteTimeline(job, model, "/step.svg", files).ok());
  ExpectWords(*ReadWholeFile(files, "/step.svg"), {"microbatches: 16, layers as measured: "});
}

// Four stages of 10 ms forward and 20 backward, between which a message takes 2.5 ms.
ModelDescription MeasuredModel() {
  ModelDescription model = Model();
  for (const double forward : {0.004, 0.003, 0.003, 0.01, 0.01, 0.01}) {
    model.costs.push_back({forward, 2 * forward, 1024, 1 << 20});
  }
  model.hop = MeasuredHop{4096, 0.0025};
  return model;
}

TEST(PipelineText, AHopTakesItsTime) {
  const ModelDescription model = MeasuredModel();
  // 16 * 30 + 3 * 30 without; 1F1B waits for hops again and again.
  ExpectWords(Text(Job(), model),
              {"hop                  2.500 ms between two stages (4.00 KiB over TCP within this",
               "0.64 s a step\n", "stage   parameters  with buffers  kept  activations  parts",
               // Its three layers of 1 MiB for each of 4 microbatches.
               "     4     12.0 MiB  0: embedding", "   1.00 KiB     1.00 MiB  norm\n"});
  ModelDescription given = model;
  given.hop = MeasuredHop{0, 0};
  ExpectWords(Text(Job(), given), {"0.000 ms between two stages, as given\n", "0.57 s a step\n"});
}

TEST(PipelineText, EagerForwardsAreAsManyAsTheHopNeedsAndTheMemoryAllows) {
  JobConfig job = Job();
  job.mutable_pipeline()->set_schedule(EAGER);
  ModelDescription model = MeasuredModel();
  ExpectWords(Text(job, model),
              {"forwards ahead       2 of at most 3 are worth it: 0.585 s a step, "
               "with pipeline { schedule: EAGER forwards_ahead: 2 }\n"});
  model.stage_memory = 16 << 20;
  ExpectWords(Text(job, model),
              {"forwards ahead       1 of at most 3 are worth it within 16.0 MiB"});
  model.stage_memory = 4 << 20;
  EXPECT_EQ(PlanText(job, model).status().code(), absl::StatusCode::kResourceExhausted);
  // Three layers that are computed again, and of inputs and messages some KiB.
  job.mutable_pipeline()->set_recompute(true);
  model.stage_memory = 2 << 20;
  const std::string refused(PlanText(job, model).status().message());
  EXPECT_NE(refused.find("even as 1F1B keeps 31"), std::string::npos) << refused;
  EXPECT_NE(refused.find(" bytes on one stage; 2097152 are allowed"), std::string::npos) << refused;
}

TEST(PipelineText, ActivationsThatDoNotFitAreRefused) {
  ModelDescription model = MeasuredModel();
  model.stage_memory = 13 << 20;
  Text(Job(), model);
  model.stage_memory = 12 << 20;  // and room for the messages that come
  const auto text = PlanText(Job(), model);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(text.status().message().find("the activations of stage 0 take "),
            absl::string_view::npos)
      << text.status();
  // Of inputs there is little to keep, and of the rest as much as of one microbatch.
  JobConfig job = Job();
  job.mutable_pipeline()->set_recompute(true);
  ExpectWords(Text(job, model), {"     4     3.01 MiB  0: emb"});
}

// The second halves of stage s' backwards stay s microbatches behind the first.
TEST(PipelineText, ForwardsThatAreComputedAgainInHalvesStayUntilTheSecondHalf) {
  JobConfig job = Job();
  job.mutable_pipeline()->set_schedule(ZERO_BUBBLE);
  job.mutable_pipeline()->set_recompute(true);
  // Beside some KiB of inputs and messages: three layers of 1 MiB of one microbatch; then a layer
  // of two, three and four.
  ExpectWords(Text(job, MeasuredModel()),
              {"     4     3.01 MiB  0: embedding", "     4     2.02 MiB  1: l1",
               "     4     3.02 MiB  2: l2", "     4     4.01 MiB  3: l3"});
  // Not more than there are.
  job.set_accumulate(2);
  ExpectWords(Text(job, MeasuredModel()), {"     2     2.00 MiB  3: l3"});
}

// The worker sends a step's samples ahead, and nobody waits with sending them.
TEST(PipelineText, InputsOfTheFirstPartLieThereFromTheBeginning) {
  ModelDescription model = MeasuredModel();
  model.input_bytes = 1 << 20;
  ExpectWords(Text(Job(), model), {"     4     28.0 MiB  0: embedding"});  // 12 MiB and 16 inputs
  // Two stages have the first part, each for half of the microbatches.
  JobConfig job = Job();
  job.mutable_pipeline()->set_schedule(CHIMERA);
  const auto peaks = [&](uint64_t input_bytes) {
    model.input_bytes = input_bytes;
    const auto plan = PlanPipelines(job, model);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<uint64_t> bytes;
    for (const StagePrediction& stage : plan->prediction.stages) bytes.push_back(stage.peak_bytes);
    return bytes;
  };
  std::vector<uint64_t> expected = peaks(0);
  expected.front() += 8 << 20;
  expected.back() += 8 << 20;
  EXPECT_EQ(peaks(1 << 20), expected);
  // Of steps that overlap those of the step that is waited for, of as many as its weights are old,
  // and of one more.
  job.mutable_pipeline()->set_schedule(TWO_BUFFER_WEIGHTS);
  expected = peaks(0);
  expected.front() += 3 * 16 << 20;
  EXPECT_EQ(peaks(1 << 20), expected);
}

TEST(PipelineText, ACutThatDoesNotFitIsNotProposed) {
  JobConfig job = Job();
  job.mutable_cluster()->set_stages(2);
  ModelDescription model = Model(2);
  PutOnFirstStage(model);
  // The last one takes the time, those before it the memory.
  for (const double forward : {0.001, 0.001, 0.001, 0.009}) {
    model.costs.push_back({forward, 2 * forward, 1024, forward < 0.002 ? 1U << 20 : 0});
  }
  job.mutable_pipeline()->add_cut_before("norm");
  model.parts = {{"embedding"}, {"norm", "layer.0", "l1"}};
  model.stage_memory = 8 << 20;
  ExpectWords(Text(job, model), {"s a step, with pipeline { cut_before: \"l1\" }"});
  model.stage_memory = 4 << 20;
  ExpectWords(Text(job, model),
              {"as it is; one that is balanced better does not fit into 4.00 MiB"});
  model.stage_memory = 1 << 20;
  EXPECT_EQ(PlanText(job, model).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PipelineText, TheTimelineIsWrittenAsAPicture) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/out").ok());
  ASSERT_TRUE(WriteTimeline(Job(), Model(), "/out/step.svg", files).ok());
  const auto svg = ReadWholeFile(files, "/out/step.svg");
  ASSERT_TRUE(svg.ok()) << svg.status();
  ExpectWords(*svg, {"<svg ", ">piped: 1f1b, microbatches: 16, equal stages, 1s a forward: 57s, ",
                     "bubble 15.8%<", ">stage 3<", "</svg>"});
}

TEST(PipelineText, ATimelineThatCannotBeMadeOrWrittenIsRefused) {
  MemoryFileSystem files;
  const absl::Status written = WriteTimeline(Job(), Model(), "/nowhere/step.svg", files);
  EXPECT_NE(written.message().find("--timeline: "), absl::string_view::npos) << written;
  EXPECT_NE(written.message().find("/nowhere/step.svg"), absl::string_view::npos) << written;
  JobConfig job = Job();
  job.mutable_cluster()->set_stages(0);
  const absl::Status none = WriteTimeline(job, Model(), "/step.svg", files);
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(none.message().find("the job has none"), absl::string_view::npos) << none;
  EXPECT_FALSE(files.Exists("/step.svg"));
}

}  // namespace
}  // namespace parley
