// A training program of one's own: a LibTorch network and data made on the spot.
//
//   parley-coordinator --job=spiral.textproto --listen=127.0.0.1:4000 --out=/tmp/spiral &
//   parley-shard --job=spiral.textproto --coordinator=127.0.0.1:4000 &
//   train_your_own spiral.textproto 127.0.0.1:4000 &    # once for each of the job's workers
//
// On several machines the last is file:JOBDIR/coordinator.address; the credentials lie beside it.
//
// The job file says `model { own {} } data { own {} batch: 50 }`; seed, optimizer, schedule, number
// of workers and epochs come from it too.
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <cstdio>

#include "client/grpc_connector.h"
#include "client/job_credentials.h"
#include "client/local_connector.h"
#include "client/session.h"
#include "client/torch/module_binding.h"
#include "common/job/job_file.h"

namespace {

// One's own network: two hidden layers.
struct Spirals : torch::nn::Module {
  torch::Tensor Forward(torch::Tensor x) {
    return last(torch::tanh(second(torch::tanh(first(x)))));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 32));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(32, 32));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(32, 2));
};

// One's own data: points on two spirals, and which of them each is on.
std::pair<torch::Tensor, torch::Tensor> MakeSpirals() {
  const torch::Tensor y = torch::arange(2000).remainder(2);
  const torch::Tensor turn = torch::linspace(0.25, 2, 2000) * M_PI;
  const torch::Tensor angle = turn + y * M_PI;
  return {torch::stack({turn * angle.cos(), turn * angle.sin()}, 1) / 6, y};
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return Fail(absl::InvalidArgumentError("usage: train_your_own JOB COORDINATOR"));
  const auto job = parley::LoadJob(argv[1], {});
  if (!job.ok()) return Fail(job.status());
  torch::manual_seed(job->seed());
  Spirals network;
  const auto [x, y] = MakeSpirals();

  // 1. Join the job.
  const auto credentials = parley::CredentialsOfJob(argv[2], /*path=*/"");
  if (!credentials.ok()) return Fail(credentials.status());
  const auto connector =
      parley::MakeLocalConnector(parley::MakeGrpcConnector(/*direct=*/true, *credentials));
  parley::Session::Options options;
  options.job = *job;
  options.coordinator = argv[2];
  const auto session = parley::Session::Join(options, *connector);
  if (!session.ok()) return Fail(session.status());

  // 2. Bind the network: from here the shards hold its parameters.
  const auto binding = parley::ModuleBinding::Create(network);
  if (!binding.ok()) return Fail(binding.status());
  absl::Status status = (*binding)->Attach(**session, x.size(0), /*test_samples=*/0);

  // 3. Train: each step says which samples are this worker's.
  while (status.ok()) {
    const auto plan = (*session)->NextStep();
    double loss_sum = 0;
    if (!plan.has_value()) {
      const auto finished = (*session)->Finish({});  // false: the job went back to a checkpoint
      if (status = finished.status(); !status.ok() || *finished) break;
    } else if (!plan->samples.empty()) {
      const std::vector<int64_t> mine(plan->samples.begin(), plan->samples.end());
      const torch::Tensor index = torch::tensor(mine);
      const torch::Tensor loss = torch::cross_entropy_loss(
          network.Forward(x.index_select(0, index)), y.index_select(0, index));
      loss_sum = loss.item<double>() * static_cast<double>(mine.size());
      status = (*binding)->Backward(loss);
    }
    if (status.ok() && plan.has_value()) status = (*binding)->Complete(loss_sum).status();
    if (status.ok()) status = (*binding)->Pull();
  }

  // 4. Say why it could not be done, or how well it was.
  if (!status.ok() && !(*session)->drained())
    return Fail(absl::AbortedError((*session)->Fail(std::string(status.message()), false).text()));
  const torch::NoGradGuard no_grad;
  const double right = network.Forward(x).argmax(1).eq(y).to(torch::kDouble).mean().item<double>();
  std::printf("accuracy %.3f\n", right);
  return 0;
}
