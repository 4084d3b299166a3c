// One worker with one shard against a plain LibTorch loop of the same network, batch, optimizer and
// thread count. Coordinator and shard are processes of their own; the two loops take turns, some
// steps each, so that what else the machine does meets both.
//
//   step_benchmark COORDINATOR SHARD [--model=simple_cnn|resnet50] [--threads=1] [--steps=N]
//                  [--batch=N]
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <torch/optim/adam.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/loopback_worker.h"
#include "worker/data/idx.h"
#include "worker/data/in_memory_source.h"
#include "worker/local_compute.h"
#include "worker/models/network.h"
#include "worker/trainer.h"

namespace parley {
namespace {

// What is compared.
struct Setting {
  std::string model;  // of the job file
  int64_t channels;
  int64_t side;
  uint64_t turn;  // steps of one loop before it is the other's turn
  uint64_t steps;
  uint64_t batch;
};

// The network of the course, and ResNet-50 on images of CIFAR-10's size.
Setting SettingOf(const std::string& model) {
  if (model == "resnet50") return {"resnet { depth: 50 }", 3, 32, 3, 30, 32};
  return {"simple_cnn {}", 1, 28, 20, 200, 100};
}

Datasets Images(const Setting& setting) {
  const std::string directory = "/usr/share/datasets/fashion-mnist";
  if (setting.channels == 1 && std::filesystem::exists(directory)) {
    Idx idx;
    idx.set_directory(directory);
    auto datasets = OpenIdx(idx);
    if (datasets.ok()) return {datasets->train, nullptr};
  }
  std::mt19937 random(1);
  constexpr size_t kImages = 20'000;
  const std::vector<int64_t> shape = {setting.channels, setting.side, setting.side};
  std::vector<uint8_t> pixels(kImages * static_cast<size_t>(shape[0] * shape[1] * shape[2]));
  std::vector<uint8_t> labels(kImages);
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random());
  for (uint8_t& label : labels) label = static_cast<uint8_t>(random() % 10);
  return {std::make_shared<PixelSource>(shape, std::move(pixels), std::move(labels), 0.5F, 0.25F),
          nullptr};
}

// The loop that one would write without parley.
class PlainLoop {
 public:
  PlainLoop(const JobConfig& job, const Datasets& data)
      : data_(data),
        batch_(job.data().batch()),
        network_(*MakeNetwork(job, data.train->x())),
        optimizer_(Parameters(), torch::optim::AdamOptions(0.001)) {}

  void Run(uint64_t steps) {
    for (uint64_t step = 0; step < steps; ++step) {
      std::vector<uint64_t> samples;
      for (uint64_t i = 0; i < batch_; ++i) samples.push_back(random_() % data_.train->size());
      const std::vector<int64_t>& image = data_.train->x().shape;
      at::Tensor x = at::empty({static_cast<int64_t>(batch_), image[0], image[1], image[2]});
      at::Tensor y = at::empty({static_cast<int64_t>(batch_)}, at::kLong);
      data_.train
          ->Fill({samples}, {static_cast<std::byte*>(x.data_ptr()), x.nbytes()},
                 {static_cast<std::byte*>(y.data_ptr()), y.nbytes()})
          .IgnoreError();
      const at::Tensor loss = at::cross_entropy_loss(network_->Forward(x), y);
      loss_sum_ += loss.item().toDouble();
      optimizer_.zero_grad();
      loss.backward();
      optimizer_.step();
    }
  }

 private:
  std::vector<at::Tensor> Parameters() const {
    std::vector<at::Tensor> parameters;
    for (const NamedTensor& named : network_->Tensors()) {
      if (!named.buffer) parameters.push_back(named.tensor);
    }
    return parameters;
  }

  const Datasets& data_;
  const uint64_t batch_;
  std::mt19937_64 random_{1};
  const std::unique_ptr<Network> network_;
  torch::optim::Adam optimizer_;
  double loss_sum_ = 0;
};

int Run(const std::string& coordinator, const std::string& shard, const Setting& setting,
        int threads) {
  const auto worker = Require(LoopbackWorker::Join(
      coordinator, shard,
      absl::StrCat("seed: 1\nmodel { ", setting.model, " }\ndata { own {} batch: ", setting.batch,
                   " }\noptimizer { adam { rate: 0.001 } }\nthreads: ", threads,
                   "\nsteps: ", setting.steps, "\ncluster { workers: 1 shards: 1 }\n",
                   "checkpoint { at_end: false }")));
  const uint64_t turn = setting.turn;
  const Datasets data = Images(setting);
  const JobConfig& job = worker->job();
  Session& session = worker->session();
  const auto network = Require(MakeNetwork(job, data.train->x()));
  at::set_num_threads(threads);
  PlainLoop plain(job, data);
  plain.Run(turn);

  Metrics metrics;
  TrainingMetrics training_metrics(metrics);
  Log log(LogFormat::kText, "benchmark");
  std::vector<double> parley_rates;
  std::vector<double> plain_rates;
  const double images = static_cast<double>(turn * job.data().batch());
  uint64_t step = 0;
  absl::Time begin;
  // Before each step of parley's loop: every so many steps the other loop has its turn.
  const auto take_turns = [&] {
    if (step++ % turn != 0) return std::string();
    if (step > 1) {
      parley_rates.push_back(images / SecondsSince(begin));
      begin = SteadyNow();
      plain.Run(turn);
      plain_rates.push_back(images / SecondsSince(begin));
      std::fprintf(stderr, "step %d of %d: parley %.0f, plain %.0f images/s\n",
                   static_cast<int>(step - 1), static_cast<int>(job.steps()), parley_rates.back(),
                   plain_rates.back());
    }
    begin = SteadyNow();
    return std::string();
  };
  LocalCompute compute({job, *network, data, session, training_metrics});
  Trainer trainer({job, compute, session, training_metrics, log, take_turns});
  Require(trainer.Run());
  std::vector<double> ratios;
  for (size_t i = 0; i < plain_rates.size(); ++i)
    ratios.push_back(parley_rates[i] / plain_rates[i]);
  for (const PhaseSeconds& phase : training_metrics.seconds()) {
    std::printf("%-9s %.3f s\n", phase.phase().c_str(), phase.seconds());
  }
  std::printf("parley: one worker, one shard  %.0f images/s (median of %zu turns of %d steps)\n",
              Median(parley_rates), parley_rates.size(), static_cast<int>(turn));
  std::printf("plain LibTorch loop            %.0f images/s\n", Median(plain_rates));
  std::printf("ratio                          %.3f (median of the turns' ratios)\n",
              Median(ratios));
  return Median(ratios) >= 0.90 ? 0 : 1;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  CLI::App app("One worker and one shard against a plain LibTorch loop");
  std::string coordinator;
  std::string shard;
  std::string model = "simple_cnn";
  int threads = 1;
  uint64_t steps = 0;
  uint64_t batch = 0;
  app.add_option("coordinator", coordinator)->required();
  app.add_option("shard", shard)->required();
  app.add_option("--model", model)->check(CLI::IsMember({"simple_cnn", "resnet50"}));
  app.add_option("--threads", threads, "Of each loop");
  app.add_option("--steps", steps, "Of parley's loop");
  app.add_option("--batch", batch, "Samples of a step");
  CLI11_PARSE(app, argc, argv);
  parley::Setting setting = parley::SettingOf(model);
  if (steps != 0) setting.steps = steps;
  if (batch != 0) setting.batch = batch;
  return parley::Run(coordinator, shard, setting, threads);
}
