// Trains a job's model in one process with a plain LibTorch loop whose gradients are of weights
// that are some steps old, w(t + 1) = w(t) - rate * gradient(w(t - DELAY)), and prints the tensors
// that it ends with, as JSON: name to bytes in hexadecimal. For asynchronous_pipeline_test: what
// pipelines whose steps overlap must give, bit for bit. delayed_loop JOB DELAY
//
// Of this project it has the model, the data and the order of the samples. The delay begins anew
// behind each data epoch, where a pipeline comes to rest.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "client/data_plan.h"
#include "common/job/job_file.h"
#include "worker/batch_tensors.h"
#include "worker/data/datasets.h"
#include "worker/loss.h"
#include "worker/microbatch_seed.h"
#include "worker/models/network.h"
#include "worker/step_batches.h"

namespace parley {
namespace {

using Values = std::vector<at::Tensor>;

class DelayedLoop {
 public:
  DelayedLoop(const JobConfig& job, const Datasets& data, Network& network, size_t delay)
      : job_(job), data_(data), network_(network), delay_(delay) {
    for (const NamedTensor& named : network.Tensors()) {
      if (!named.buffer) parameters_.push_back(named.tensor);
    }
  }

  void Run() {
    ClusterView view;
    view.set_training_samples(data_.train->size());
    view.add_contributors()->set_ordinal(0);
    const DataPlan plans(job_, view, 0);
    StepBatches batches(job_, data_);
    const Sgd& sgd = job_.optimizer().sgd();
    torch::optim::SGD optimizer(parameters_,
                                torch::optim::SGDOptions(sgd.rate()).momentum(sgd.momentum()));
    std::vector<Values> versions = {Copy(parameters_)};  // since the last rest
    for (const StepPlan& plan : plans.Ahead(job_.steps())) {
      const size_t newest = versions.size() - 1;
      Set(versions[newest > delay_ ? newest - delay_ : 0]);
      Gradients(plan, batches);
      Set(versions[newest]);
      Weigh(static_cast<float>(plan.weight));
      optimizer.step();
      optimizer.zero_grad(/*set_to_none=*/true);
      if (plan.ends_epoch) versions.clear();
      versions.push_back(Copy(parameters_));
    }
  }

 private:
  static Values Copy(const Values& values) {
    Values copies;
    for (const at::Tensor& value : values) copies.push_back(value.detach().clone());
    return copies;
  }

  void Set(const Values& values) {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < values.size(); ++i) parameters_[i].copy_(values[i]);
  }

  // A step of fewer samples weighs less, and is divided by what all weigh.
  void Weigh(float weight) {
    if (weight == 1) return;
    for (const at::Tensor& parameter : parameters_) {
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(weight).div_(weight);
    }
  }

  void Gradients(const StepPlan& plan, StepBatches& batches) {
    const auto microbatches = batches.Cut(plan);
    for (size_t k = 0; k < microbatches.size(); ++k) {
      const size_t samples = microbatches[k].size();
      const std::unique_ptr<Batch> batch = *batches.Take(plan, microbatches[k]);
      network_.Seed(MicrobatchSeed(job_, plan, k));
      const at::Tensor x = BatchTensor(data_.train->x(), samples, batch->x.span());
      const at::Tensor y = BatchTensor(data_.train->y(), samples, batch->y.span());
      at::Tensor loss = ComputeLoss(LossOf(job_), network_.Forward(x), y);
      if (samples != plan.samples.size()) {
        loss = loss.mul(static_cast<double>(samples) / static_cast<double>(plan.samples.size()));
      }
      loss.backward();
    }
  }

  const JobConfig& job_;
  const Datasets& data_;
  Network& network_;
  const size_t delay_;
  Values parameters_;
};

absl::Status Main(const std::string& path, size_t delay) {
  const absl::StatusOr<JobConfig> job = LoadJob(path, {});
  if (!job.ok()) return job.status();
  const absl::StatusOr<Datasets> data = OpenDatasets(job->data(), job->seed());
  if (!data.ok()) return data.status();
  auto network = MakeNetwork(*job, data->train->x());
  if (!network.ok()) return network.status();
  at::set_num_threads(1);
  DelayedLoop(*job, *data, **network, delay).Run();
  nlohmann::json values;
  for (const NamedTensor& named : (*network)->Tensors()) {
    const at::Tensor value = named.tensor.detach().contiguous();
    values[named.name] = absl::BytesToHexString(
        absl::string_view(static_cast<const char*>(value.const_data_ptr()), value.nbytes()));
  }
  std::printf("%s\n", values.dump().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = parley::Main(argv[1], static_cast<size_t>(std::atoi(argv[2])));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
