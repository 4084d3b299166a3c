// Bar 4: two workers in deterministic mode give, bit for bit, what a plain LibTorch loop gives that
// adds the workers' gradients in their order and divides once.
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <numeric>
#include <thread>

#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "common/job/data_division.h"
#include "tests/parity/loopback_cluster.h"
#include "worker/data/idx.h"
#include "worker/data/in_memory_source.h"
#include "worker/local_compute.h"
#include "worker/models/network.h"
#include "worker/trainer.h"

const char* coordinator_program = nullptr;
const char* shard_program = nullptr;

namespace parley {
namespace {

constexpr uint64_t kSamples =
    530;  // the last step of an epoch has 64 and 18 samples: unequal weights
constexpr uint64_t kSteps = 100;
constexpr double kRate = 0.05;

// The first images of Fashion-MNIST, which deploy/bootstrap installs.
absl::StatusOr<Datasets> Images() {
  Idx idx;
  idx.set_directory("/usr/share/datasets/fashion-mnist");
  const auto files = OpenIdx(idx);
  if (!files.ok()) return files.status();
  const DataSource& all = *files->train;
  std::vector<uint64_t> samples(kSamples);
  std::iota(samples.begin(), samples.end(), 0);
  std::vector<std::byte> x(kSamples * 28 * 28 * sizeof(float));
  std::vector<std::byte> y(kSamples * sizeof(int64_t));
  if (const absl::Status filled = all.Fill({samples}, absl::MakeSpan(x), absl::MakeSpan(y));
      !filled.ok()) {
    return filled;
  }
  return Datasets{
      std::make_shared<RowSource>(kSamples, all.x(), all.y(), std::move(x), std::move(y)), nullptr};
}

std::vector<at::Tensor> Values(const Network& network) {
  std::vector<at::Tensor> values;
  for (const NamedTensor& named : network.Tensors())
    values.push_back(named.tensor.detach().clone());
  return values;
}

// What a worker of this process ends with.
std::vector<at::Tensor> TrainOneWorker(const JobConfig& job, const std::string& coordinator,
                                       const Datasets& data, const std::string& address) {
  const auto connector = MakeLocalConnector(MakeGrpcConnector());
  Session::Options options;
  options.job = job;
  options.coordinator = coordinator;
  options.address = address;
  options.metrics_address = address;
  const auto session = Session::Join(options, *connector);
  if (!session.ok()) {
    ADD_FAILURE() << session.status();
    return {};
  }
  const auto network = MakeNetwork(job, data.train->x());
  Metrics metrics;
  TrainingMetrics training_metrics(metrics);
  Log log(LogFormat::kText, "worker");
  LocalCompute compute({job, **network, data, **session, training_metrics});
  Trainer trainer({job, compute, **session, training_metrics, log, {}});
  const absl::Status status = trainer.Run();
  EXPECT_TRUE(status.ok()) << status;
  return Values(**network);
}

std::vector<at::Tensor> TrainPlainly(const JobConfig& job, const Datasets& data) {
  at::set_num_threads(1);
  const auto network = *MakeNetwork(job, data.train->x());
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& named : network->Tensors()) parameters.push_back(named.tensor);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(kRate));
  DataPosition position;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const uint64_t epoch = position.epoch();
    const auto order = EpochOrder(job.seed(), epoch, kSamples, true);
    const auto division = Divide(position, kSamples, 2, NominalSamples(job));
    std::vector<at::Tensor> sums(parameters.size());
    double total_weight = 0;
    for (const std::vector<SampleRange>& ranges : division) {
      if (ranges.empty()) continue;
      std::vector<uint64_t> samples;
      for (const SampleRange& range : ranges) {
        for (uint64_t i = range.begin(); i < range.end(); ++i) samples.push_back(order[i]);
      }
      const auto count = static_cast<int64_t>(samples.size());
      at::Tensor x = at::empty({count, 1, 28, 28});
      at::Tensor y = at::empty({count}, at::kLong);
      const absl::Status filled =
          data.train->Fill({samples}, {static_cast<std::byte*>(x.data_ptr()), x.nbytes()},
                           {static_cast<std::byte*>(y.data_ptr()), y.nbytes()});
      EXPECT_TRUE(filled.ok());
      at::cross_entropy_loss(network->Forward(x), y).backward();
      const double weight = static_cast<double>(count) / static_cast<double>(NominalSamples(job));
      total_weight += weight;
      const c10::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) {
        at::Tensor& gradient = parameters[i].mutable_grad();
        if (weight != 1) gradient.mul_(static_cast<float>(weight));
        sums[i] = sums[i].defined() ? sums[i].add(gradient) : gradient.clone();
        gradient = at::Tensor();
      }
      EXPECT_TRUE(MarkUsed(position, epoch, ranges, kSamples).ok());
    }
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = sums[i].div(static_cast<float>(total_weight));
    }
    optimizer.step();
    optimizer.zero_grad();
  }
  return Values(*network);
}

TEST(BitwiseTest, TwoWorkersAreAPlainLoopThatAddsInOrderAndDividesOnce) {
  const absl::StatusOr<Datasets> data = Images();
  ASSERT_TRUE(data.ok()) << data.status() << "; deploy/bootstrap installs them";
  for (const int shards : {1, 3}) {
    LoopbackCluster cluster(coordinator_program, shard_program,
                            "seed: 3\nmodel { simple_cnn {} }\ndata { own {} batch: 64 }\n"
                            "optimizer { sgd { rate: 0.05 } }\n"
                            "consistency { sync { deterministic: true } }\nthreads: 1\n"
                            "steps: 100\ncheckpoint { at_end: false }\n"
                            "cluster { workers: 2 shards: " +
                                std::to_string(shards) + " }");
    std::vector<at::Tensor> workers[2];
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        workers[i] = TrainOneWorker(cluster.job(), cluster.coordinator(), *data,
                                    "127.0.0.1:" + std::to_string(i + 1));
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::vector<at::Tensor> plain = TrainPlainly(cluster.job(), *data);
    for (const auto& values : workers) {
      ASSERT_EQ(values.size(), plain.size());
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(at::equal(values[i], plain[i]))
            << shards << " shards, tensor " << i << ", largest difference "
            << values[i].sub(plain[i]).abs().max().item().toDouble();
      }
    }
    EXPECT_EQ(cluster.Wait(), std::vector<int>(static_cast<size_t>(1 + shards), 0));
  }
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 3) return 2;
  coordinator_program = argv[1];
  shard_program = argv[2];
  return RUN_ALL_TESTS();
}
