// A training program of one's own: a LibTorch network, data made on the spot; on a GPU, too.
//
//   bazel build -c opt //client/example:train_your_own
//   out/bin/parley run client/example/spiral.textproto --worker=PROGRAM
//
// docs/api.md, "Your own program", says it in full. All that is not here is in the job file.
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <vector>

#include "client/torch/torch_status.h"
#include "worker/bind_module.h"
#include "worker/loss.h"
#include "worker/own_program.h"

namespace {

// An option of one's own, which the job file gives: model { own { arguments: "--width=64" } }.
int64_t width = 32;

// One's own network: two hidden layers.
struct Spirals : torch::nn::Module {
  torch::Tensor Forward(torch::Tensor x) {
    return last(torch::tanh(second(torch::tanh(first(x)))));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, width));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(width, width));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(width, 2));
};

// One's own data: points on two spirals, and which of them each is on.
struct Points {
  explicit Points(int64_t count) {
    const torch::Tensor turn = torch::linspace(0.25, 2, count) * M_PI;
    y = torch::arange(count).remainder(2);
    const torch::Tensor angle = turn + y * M_PI;
    x = torch::stack({turn * angle.cos(), turn * angle.sin()}, 1) / 6;
  }
  torch::Tensor x, y;
};

// What the job wants evaluated, when it does; `parley run` shows what comes of it.
absl::Status Evaluate(const parley::OwnTraining& training, parley::TrainingBinding& binding,
                      Spirals& network, const Points& test) {
  while (true) {
    const auto due = binding.PullEvaluation();
    if (!due.ok() || !due->has_value()) return due.status();
    const int64_t begin = (*due)->samples.begin();
    const int64_t end = (*due)->samples.end();
    const auto part = binding.ToNetwork({test.x.slice(0, begin, end), test.y.slice(0, begin, end)});
    if (!part.ok()) return part.status();
    parley::Evaluation result;
    result.set_version((*due)->version);
    result.set_epoch((*due)->epoch);
    absl::Status settled;
    absl::Status status = parley::CatchTorch("evaluation", [&] {  // LibTorch throws
      const torch::NoGradGuard no_grad;
      const torch::Tensor outputs = network.Forward(part->x);
      settled = binding.Settle();  // a GPU has done what it was given
      if (settled.ok()) parley::AddToEvaluation(training.job.loss(), outputs, part->y, result);
    });
    status.Update(settled);
    if (status.ok()) status = training.session.ReportEvaluation(result).status();
    if (status.ok()) status = binding.Pull(/*ahead=*/false);
    if (!status.ok()) return status;
  }
}

// The loop. The job has been joined; what is wrong it returns, and the others learn of it.
absl::Status Train(const parley::OwnTraining& training) {
  parley::Session& session = training.session;
  torch::manual_seed(training.job.seed());
  Spirals network;
  const Points points(2000);
  const Points test(501);

  // 1. Bind the network, to the CPU or a GPU: from here the shards hold its parameters.
  const auto binding = parley::BindModule(network, training.job, training.device);
  if (!binding.ok()) return binding.status();
  absl::Status status = (*binding)->Attach(session, points.x.size(0), test.x.size(0));
  if (!status.ok()) return status;
  training.Begin();

  while (true) {
    if (status = Evaluate(training, **binding, network, test); !status.ok()) return status;
    training.steps.HasGoneBack();  // meanwhile, perhaps

    // 2. Each step says which samples are this worker's.
    const auto plan = session.NextStep();
    if (!plan.has_value()) {
      const auto finished = session.Finish(training.metrics.seconds());
      if (!finished.ok() || *finished) return finished.status();
      if (status = (*binding)->Pull(/*ahead=*/false); !status.ok()) return status;
      continue;  // the job has gone back to a checkpoint
    }

    // 3. Forward and backward, of whose gradients each leaves as soon as it is there.
    double loss_sum = 0;
    if (!plan->samples.empty()) {
      const torch::Tensor index =
          torch::tensor(std::vector<int64_t>(plan->samples.begin(), plan->samples.end()));
      const auto batch =
          (*binding)->ToNetwork({points.x.index_select(0, index), points.y.index_select(0, index)});
      if (!batch.ok()) return batch.status();
      torch::Tensor loss;
      status = parley::CatchTorch("forward", [&] {
        loss = parley::ComputeLoss(training.job.loss(), network.Forward(batch->x), batch->y);
      });
      if (status.ok()) status = (*binding)->Backward(loss, /*last=*/true);
      if (status.ok()) status = (*binding)->Settle();
      if (!status.ok()) return status;
      loss_sum = loss.item<double>() * static_cast<double>(plan->samples.size());
    }

    // 4. One verdict for all on what counts, and the parameters that it makes.
    const auto verdict = (*binding)->Complete(loss_sum);
    if (!verdict.ok()) return verdict.status();
    if (status = (*binding)->Pull(/*ahead=*/true); !status.ok()) return status;
    training.steps.Done(*plan, *verdict);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Tells two spirals apart.", "train_your_own");
  app.add_option("--width", width, "Of a hidden layer")->check(CLI::Range(1, 4096));
  return parley::RunOwnProgram(app, argc, argv, {.train = Train});
}
