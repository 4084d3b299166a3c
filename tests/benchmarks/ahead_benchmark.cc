// What sync.update_ahead makes of the step of a worker that computes elsewhere, as on a GPU: it has
// the tensors of the course's 77.9-million transformer, waits for each of them in turn, takes its
// time, gives their gradients in the other order, and takes its time for that too. Beside one shard
// that is a process of its own. Once without and once with updates ahead, step by step in turns,
// against the longer of what the worker takes and what the shard's work on a step takes alone.
//
//   bazel run -c opt //tests/benchmarks:ahead_benchmark -- [--steps=20] [--compute_ms=N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "client/session.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/loopback_cluster.h"
#include "tests/parity/shard_work.h"

namespace parley {
namespace {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  // Of what forward takes, and of what backward takes: as many products as it has elements. What is
  // looked up takes next to none.
  double products = 0;
};

// In the order of a forward.
std::vector<Tensor> Transformer() {
  constexpr int64_t kWords = 28782;
  constexpr int64_t kWidth = 1024;
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, bool looked_up) {
    double elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<double>(extent);
    tensors.push_back({name, shape, looked_up ? 0 : elements});
  };
  add("embedding.weight", {kWords, kWidth}, true);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string of = absl::StrCat("layer", layer);
    add(of + ".attention.in.weight", {3 * kWidth, kWidth}, false);
    add(of + ".attention.in.bias", {3 * kWidth}, false);
    add(of + ".attention.out.weight", {kWidth, kWidth}, false);
    add(of + ".attention.out.bias", {kWidth}, false);
    for (const char* name : {".linear1", ".linear2"}) {
      add(of + name + ".weight", {kWidth, kWidth}, false);
      add(of + name + ".bias", {kWidth}, false);
    }
    for (const char* name : {".norm1", ".norm2"}) {
      add(of + name + ".weight", {kWidth}, false);
      add(of + name + ".bias", {kWidth}, false);
    }
  }
  add("decoder.weight", {kWords, kWidth}, false);
  add("decoder.bias", {kWords}, false);
  return tensors;
}

class Worker {
 public:
  Worker(const std::string& coordinator, const std::string& shard, bool ahead, uint64_t steps)
      : tensors_(Transformer()),
        cluster_(coordinator, shard,
                 absl::StrCat(
                     "seed: 1\nmodel { simple_cnn {} }\ndata { own {} batch: 1 }\n"
                     "optimizer { adam { rate: 0.001 } }\nsteps: ",
                     steps + 1, "\nconsistency { sync { update_ahead: ", ahead ? "true" : "false",
                     " } }\ncluster { workers: 1 shards: 1 }\ncheckpoint { at_end: false }")),
        connector_(MakeLocalConnector(MakeGrpcConnector())) {
    Session::Options options;
    options.job = cluster_.job();
    options.coordinator = cluster_.coordinator();
    options.address = options.metrics_address = "127.0.0.1:1";
    auto joined = Session::Join(options, *connector_);
    Require(joined.status());
    session_ = *std::move(joined);
    std::vector<TensorSpec> specs;
    for (const Tensor& tensor : tensors_) {
      TensorSpec& spec = specs.emplace_back();
      spec.set_name(tensor.name);
      spec.set_dtype(F32);
      for (const int64_t extent : tensor.shape) spec.add_shape(extent);
      products_ += tensor.products;
    }
    Require(session_->Register(specs, steps + 1, 0));
    std::vector<absl::Span<const std::byte>> zeros;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const absl::Span<std::byte> gradient = session_->gradient(i);
      std::fill(gradient.begin(), gradient.end(), std::byte{0});
      zeros.push_back(gradient);
    }
    Require(session_->Initialize(zeros));
    for (size_t i = 0; i < tensors_.size(); ++i) GiveGradient(i);
    Require(session_->Pull());
  }

  // compute: what forward and backward take; backward twice as long as forward. From one step's
  // last gradient to the next one's.
  double Step(double compute) {
    return SecondsOf([&] {
      if (begun_) Require(session_->PullAhead());
      for (size_t i = 0; i < tensors_.size(); ++i) {
        if (begun_) Require(session_->AwaitParameter(i));
        Take(compute / 3 * tensors_[i].products / products_);
      }
      if (!session_->NextStep().has_value()) Require(absl::InternalError("no step is left"));
      for (size_t i = tensors_.size(); i-- > 0;) {
        Take(compute * 2 / 3 * tensors_[i].products / products_);
        Require(session_->Push(i));
      }
      Require(session_->Complete(0).status());
      begun_ = true;
    });
  }

  // Until the shard has nothing left to do.
  void Settle() {
    Require(session_->PullAhead());
    for (size_t i = 0; i < tensors_.size(); ++i) Require(session_->AwaitParameter(i));
    begun_ = false;
  }

  double ShardWork() const {
    const auto worked = SecondsOfShardWork(cluster_);
    Require(worked.status());
    return *worked;
  }

 private:
  // Of what is looked up every fiftieth row has been.
  void GiveGradient(size_t tensor) {
    const absl::Span<std::byte> bytes = session_->gradient(tensor);
    const absl::Span<float> gradient(reinterpret_cast<float*>(bytes.data()),
                                     bytes.size() / sizeof(float));
    if (tensors_[tensor].products > 0) return std::fill(gradient.begin(), gradient.end(), 1e-3F);
    const auto row = static_cast<size_t>(tensors_[tensor].shape.back());
    for (size_t begin = 0; begin < gradient.size(); begin += 50 * row) {
      std::fill_n(gradient.begin() + begin, row, 1e-3F);
    }
  }

  // Short times add up to one that can be slept.
  void Take(double seconds) {
    owed_ += seconds;
    if (owed_ < 1e-3) return;
    const double slept = SecondsOf([&] { absl::SleepFor(absl::Seconds(owed_)); });
    owed_ -= slept;
  }

  const std::vector<Tensor> tensors_;
  const LoopbackCluster cluster_;
  const std::unique_ptr<Connector> connector_;
  std::unique_ptr<Session> session_;
  double products_ = 0;
  double owed_ = 0;
  bool begun_ = false;
};

int Main(int argc, char** argv) {
  CLI::App app("A step beside a shard, with updates ahead of the verdict and without.");
  std::string coordinator;
  std::string shard;
  uint64_t steps = 20;
  double compute_ms = 0;
  app.add_option("coordinator", coordinator, "The program")->required();
  app.add_option("shard", shard, "The program")->required();
  app.add_option("--steps", steps, "To measure; medians are told");
  app.add_option("--compute_ms", compute_ms, "Of a worker's step; 0: as long as the shard's work");
  CLI11_PARSE(app, argc, argv);

  constexpr uint64_t kWarmUp = 3;
  constexpr uint64_t kAtATime = 5;
  const uint64_t all = 2 * steps + kWarmUp + kAtATime;
  Worker without(coordinator, shard, /*ahead=*/false, all);
  Worker with(coordinator, shard, /*ahead=*/true, all);
  for (uint64_t step = 0; step < kWarmUp; ++step) {
    without.Step(0);
    with.Step(0);
  }
  with.Settle();
  absl::SleepFor(absl::Seconds(2));  // the shard makes room for updates ahead
  const double before = without.ShardWork();
  for (uint64_t step = 0; step < steps; ++step) without.Step(0);
  without.Settle();
  const double work = (without.ShardWork() - before) / static_cast<double>(steps);
  const double compute = compute_ms > 0 ? compute_ms * 1e-3 : work;

  // A few steps of the one, then of the other: what a shard has to do yet when a step ends is done
  // in the next one.
  std::vector<double> without_ahead, with_ahead;
  const auto some = [&](Worker& worker, std::vector<double>& seconds) {
    for (uint64_t step = 0; step < kAtATime; ++step) {
      const double one = worker.Step(compute);
      if (step > 0) seconds.push_back(one);
    }
    worker.Settle();
  };
  for (uint64_t step = 0; step < steps; step += kAtATime) {
    some(without, without_ahead);
    some(with, with_ahead);
  }
  const double longest = std::max(work, compute);
  std::printf("a transformer's 77.9 million parameters, Adam, one worker and one shard\n");
  const auto say = [&](const char* what, double seconds) {
    std::printf("  %-44s %8.1f ms   %5.2f\n", what, seconds * 1e3, seconds / longest);
  };
  say("the worker's forward and backward", compute);
  say("the shard's work on a step, alone", work);
  say("a step", Median(without_ahead));
  say("a step with update_ahead", Median(with_ahead));
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
