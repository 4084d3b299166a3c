// How long one who trains ResNet-50 has nothing to compute with between two steps: from its last
// gradient to the verdict, the buffers, the first layers' values and the last ones, as a worker
// pulls that goes on ahead (Session::PullAhead), beside one shard that is a process of its own.
// It tells medians, and the mean of the shard's own work on a step, of which the first layer should
// wait for next to nothing.
//
//   bazel run -c opt //tests/benchmarks:turnaround_benchmark -- [--steps=60]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/loopback_worker.h"
#include "tests/parity/shard_work.h"

namespace parley {
namespace {

// ResNet-50's tensors as torchvision has them: parameters in the order of a forward, then buffers.
class ResNet50 {
 public:
  ResNet50() {
    Layer("conv1", {64, 3, 7, 7});
    constexpr int64_t kBlocks[] = {3, 4, 6, 3};
    int64_t inputs = 64;
    for (int64_t stage = 0; stage < 4; ++stage) {
      const int64_t width = 64 << stage;
      for (int64_t block = 0; block < kBlocks[stage]; ++block) {
        const std::string name = absl::StrCat("layer", stage + 1, ".", block);
        Layer(name + ".conv1", {width, inputs, 1, 1});
        Layer(name + ".conv2", {width, width, 3, 3});
        Layer(name + ".conv3", {4 * width, width, 1, 1});
        if (block == 0) Layer(name + ".downsample", {4 * width, inputs, 1, 1});
        inputs = 4 * width;
      }
    }
    Add(specs_, "fc.weight", {1000, 2048});
    Add(specs_, "fc.bias", {1000});
    parameters_ = specs_.size();
    specs_.insert(specs_.end(), buffers_.begin(), buffers_.end());
  }
  const std::vector<TensorSpec>& specs() const { return specs_; }
  size_t parameters() const { return parameters_; }  // the first ones

 private:
  static TensorSpec& Add(std::vector<TensorSpec>& to, const std::string& name,
                         const std::vector<int64_t>& shape) {
    TensorSpec& spec = to.emplace_back();
    spec.set_name(name);
    spec.set_dtype(F32);
    for (const int64_t extent : shape) spec.add_shape(extent);
    return spec;
  }
  // A convolution and the normalisation behind it.
  void Layer(const std::string& name, const std::vector<int64_t>& shape) {
    Add(specs_, name + ".weight", shape);
    Add(specs_, name + ".norm.weight", {shape[0]});
    Add(specs_, name + ".norm.bias", {shape[0]});
    Add(buffers_, name + ".norm.running_mean", {shape[0]}).set_buffer(true);
    Add(buffers_, name + ".norm.running_var", {shape[0]}).set_buffer(true);
    TensorSpec& count = Add(buffers_, name + ".norm.num_batches_tracked", {});
    count.set_dtype(I64);
    count.set_buffer(true);
  }

  std::vector<TensorSpec> specs_;
  std::vector<TensorSpec> buffers_;
  size_t parameters_ = 0;
};

int Main(int argc, char** argv) {
  CLI::App app("How long a worker with ResNet-50's tensors waits between two steps.");
  std::string coordinator;
  std::string shard;
  uint64_t steps = 60;
  app.add_option("coordinator", coordinator, "The program")->required();
  app.add_option("shard", shard, "The program")->required();
  app.add_option("--steps", steps, "To measure; medians are told");
  CLI11_PARSE(app, argc, argv);

  constexpr uint64_t kWarmUp = 5;
  const auto worker = Require(LoopbackWorker::Join(
      coordinator, shard,
      absl::StrCat("seed: 1\nmodel { simple_cnn {} }\ndata { own {} batch: 1 }\n"
                   "optimizer { adam { rate: 0.001 } }\nsteps: ",
                   steps + kWarmUp + 1,
                   "\ncluster { workers: 1 shards: 1 }\ncheckpoint { at_end: false }")));
  Session& session = worker->session();
  const ResNet50 model;
  Require(session.Register(model.specs(), steps + kWarmUp + 1, 0));
  std::vector<absl::Span<const std::byte>> zeros;
  for (size_t i = 0; i < model.specs().size(); ++i) {
    const absl::Span<std::byte> gradient = session.gradient(i);
    std::fill(gradient.begin(), gradient.end(), std::byte{0});
    zeros.push_back(gradient);
  }
  Require(session.Initialize(zeros));
  Require(session.Pull());

  std::vector<double> verdict, buffers, first, last;
  for (uint64_t step = 0; step < steps + kWarmUp; ++step) {
    if (!session.NextStep().has_value()) Require(absl::InternalError("no step is left"));
    for (size_t i = model.parameters(); i < model.specs().size(); ++i) Require(session.Push(i));
    for (size_t i = model.parameters(); i-- > 0;) Require(session.Push(i));
    const double decided = SecondsOf([&] { Require(session.Complete(0).status()); });
    const double pulled = SecondsOf([&] { Require(session.PullAhead()); });
    const double began = SecondsOf([&] {
      for (size_t i = 0; i < 3; ++i) Require(session.AwaitParameter(i));
    });
    const double ended = SecondsOf([&] {
      for (size_t i = 3; i < model.parameters(); ++i) Require(session.AwaitParameter(i));
    });
    if (step < kWarmUp) continue;
    verdict.push_back(decided);
    buffers.push_back(decided + pulled);
    first.push_back(decided + pulled + began);
    last.push_back(decided + pulled + began + ended);
  }
  const double work =
      Require(SecondsOfShardWork(worker->cluster())) / static_cast<double>(steps + kWarmUp);
  std::printf("ResNet-50's %zu tensors, Adam; since the last gradient was given:\n",
              model.specs().size());
  const auto say = [](const char* what, double seconds) {
    std::printf("  %-44s %8.3f ms\n", what, seconds * 1e3);
  };
  say("the verdict is here", Median(verdict));
  say("the buffers are here", Median(buffers));
  say("the first layer can be computed", Median(first));
  say("all values are here", Median(last));
  say("the shard's work on a step, mean", work);
  std::printf("  %-44s %8.3f\n", "the first layer's wait, of that work", Median(first) / work);
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
