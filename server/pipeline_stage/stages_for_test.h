#ifndef PARLEY_SERVER_PIPELINE_STAGE_STAGES_FOR_TEST_H_
#define PARLEY_SERVER_PIPELINE_STAGE_STAGES_FOR_TEST_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "proto/job.pb.h"
#include "server/pipeline_stage/stage_compute.h"
#include "worker/data/data_source.h"
#include "worker/models/pipeline_model.h"

namespace parley {

// A step's microbatches.
struct MicrobatchesForTest {
  std::vector<at::Tensor> x, y;

  uint64_t samples() const;
};

// Gradients and buffers after a step, by name.
using StepForTest = std::map<std::string, at::Tensor>;

// The same in one network, one microbatch after the other; the loss is the mean over all samples.
StepForTest InOneProcess(const JobConfig& job, const SampleLayout& layout,
                         const MicrobatchesForTest& data);

// The stages of one pipeline, a part on each, in one process and without messages: every forward,
// then every backward.
class StagesForTest {
 public:
  // on: where they compute, a device for each stage; empty: on the CPU.
  StagesForTest(const JobConfig& job, const SampleLayout& layout,
                const std::vector<ComputeDevice*>& on = {});

  // Once. halves: input and weight gradients one after the other.
  StepForTest Run(const MicrobatchesForTest& data, bool halves);

 private:
  void Collect(size_t stage, StepForTest& step);

  const JobConfig job_;
  const PipelineModel model_;
  std::vector<std::unique_ptr<FakeSession>> sessions_;
  std::vector<std::unique_ptr<StageCompute>> stages_;
};

}  // namespace parley

#endif  // PARLEY_SERVER_PIPELINE_STAGE_STAGES_FOR_TEST_H_
