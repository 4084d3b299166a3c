// A training program of one's own: a LibTorch network and data made on the spot.
//
//   bazel build -c opt //client/example:train_your_own
//   out/bin/parley run client/example/spiral.textproto --worker=PROGRAM
//
// docs/api.md, "Your own program", says it in full. All that is not here is in the job file.
#include <torch/nn/modules/linear.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "client/session.h"
#include "client/torch/module_binding.h"
#include "client/torch/torch_status.h"
#include "common/daemon/command_line.h"
#include "common/daemon/daemon_credentials.h"
#include "common/daemon/exit_code.h"
#include "common/daemon/signals.h"
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
  const bool wrong = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return wrong ? parley::kWrongUsage : parley::kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Tells two spirals apart.", "train_your_own");
  parley::DaemonFlags flags;  // --job, --coordinator, and what else a worker is started with
  parley::AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  if (const auto code = parley::ParseCommandLine(app, argc, argv)) return *code;
  const auto job = parley::LoadJob(flags.job, {});
  if (!job.ok()) return Fail(job.status());
  // Told to end: the job writes a checkpoint first. Before there is any other thread.
  std::atomic<parley::Session*> joined = nullptr;
  std::optional<parley::TerminationSignals> signals([&](int signal) {
    if (joined == nullptr || signal == SIGINT) std::_Exit(parley::kPreempted);
    joined.load()->Preempt(
        "preempted by " + parley::SignalName(signal),
        signal == SIGUSR1 ? parley::WarningGrace(*job) : parley::PreemptionGrace(*job));
  });
  torch::manual_seed(job->seed());
  Spirals network;
  const auto [x, y] = MakeSpirals();

  // 1. Join the job.
  const auto credentials = parley::DaemonCredentials(job->tls(), flags);
  if (!credentials.ok()) return Fail(credentials.status());
  const auto connector =
      parley::MakeLocalConnector(parley::MakeGrpcConnector(/*direct=*/true, *credentials));
  parley::Session::Options options;
  options.job = *job;
  options.coordinator = flags.coordinator;
  options.join_timeout = flags.join_timeout;
  options.coordinator_news = [](const auto& news) { std::fprintf(stderr, "%s\n", news.c_str()); };
  const auto session = parley::Session::Join(options, *connector);
  if (!session.ok()) return Fail(session.status());
  joined = session->get();
  const std::ofstream joined_file(flags.joined_file);         // deploy/slurm's role looks for it
  const absl::Cleanup no_signals = [&] { signals.reset(); };  // before the session goes

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
      torch::Tensor loss;
      status = parley::CatchTorch("forward", [&, &x = x, &y = y] {  // LibTorch throws
        const torch::Tensor index =
            torch::tensor(std::vector<int64_t>(plan->samples.begin(), plan->samples.end()));
        loss = torch::cross_entropy_loss(network.Forward(x.index_select(0, index)),
                                         y.index_select(0, index));
        loss_sum = loss.item<double>() * static_cast<double>(plan->samples.size());
      });
      if (status.ok()) status = (*binding)->Backward(loss);
    }
    if (status.ok() && plan.has_value()) status = (*binding)->Complete(loss_sum).status();
    if (status.ok()) status = (*binding)->Pull();
  }

  // 4. Say why it could not be done, or how well it was.
  if (!status.ok() && !(*session)->drained()) {
    const auto cause = (*session)->Fail(std::string(status.message()), /*preempted=*/false);
    std::fprintf(stderr, "%s\n", cause.text().c_str());
    return cause.preempted() ? parley::kPreempted : parley::kFailed;
  }
  const torch::NoGradGuard no_grad;
  const double right = network.Forward(x).argmax(1).eq(y).to(torch::kDouble).mean().item<double>();
  std::printf("accuracy %.3f\n", right);
  return 0;
}
