// What sync.update_ahead makes of the step of a worker whose device computes and copies as a GPU
// would: it has the tensors of the course's 77.9-million transformer, takes each to the device when
// its values are here, computes forward and backward with all of them, and brings each gradient
// back when it is computed. The device is times only; all that the host does is done. Beside one
// shard that is a process of its own. Without updates ahead and with them, with tensors copied as a
// whole and in pieces, with the embedding's whole gradient and with what of it is not zeros, step
// by step in turns, against the longest of: what the device computes, what it copies each way, and
// the shard's work on a step alone. By default the device computes 0.6 times as long as the shard
// works, and copies 0.24 times: an H200 beside 16 cores (docs/gpu.md).
//
//   bazel run -c opt //tests/benchmarks:ahead_benchmark -- [--steps=20] [--compute_ms=N]
//       [--copies_ms=N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "common/nonzero_blocks.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/loopback_worker.h"
#include "tests/parity/shard_work.h"

namespace parley {
namespace {

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

// What a GPU is given it does in order, stream by stream, each for so long.
class Stream {
 public:
  // Of work that can begin then: when it has ended.
  absl::Time End(absl::Time from, double seconds) {
    return free_ = std::max(free_, from) + absl::Seconds(seconds);
  }

 private:
  absl::Time free_ = absl::InfinitePast();
};

struct DeviceTimes {
  double compute = 0;  // seconds of forward and backward, which takes twice as long
  double copies = 0;   // of all parameters, one way
  size_t piece = 0;    // of a gradient, in bytes; of values half of it; 0: tensors as a whole
  bool leaves_out_zeros = false;  // of gradients; the shard is told which they are
};

class Worker {
 public:
  Worker(const std::string& coordinator, const std::string& shard, bool ahead, uint64_t steps)
      : tensors_(Transformer()),
        worker_(Require(LoopbackWorker::Join(
            coordinator, shard,
            absl::StrCat("seed: 1\nmodel { simple_cnn {} }\ndata { own {} batch: 1 }\n"
                         "optimizer { adam { rate: 0.001 } }\nsteps: ",
                         steps + 1,
                         "\nconsistency { sync { update_ahead: ", ahead ? "true" : "false",
                         " } }\ncluster { workers: 1 shards: 1 }\ncheckpoint { at_end: false }")))),
        session_(worker_->session()) {
    std::vector<TensorSpec> specs;
    for (const Tensor& tensor : tensors_) {
      TensorSpec& spec = specs.emplace_back();
      spec.set_name(tensor.name);
      spec.set_dtype(F32);
      for (const int64_t extent : tensor.shape) spec.add_shape(extent);
      products_ += tensor.products;
    }
    Require(session_.Register(specs, steps + 1, 0));
    std::vector<absl::Span<const std::byte>> zeros;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const absl::Span<std::byte> gradient = session_.gradient(i);
      std::fill(gradient.begin(), gradient.end(), std::byte{0});
      zeros.push_back(gradient);
      bytes_ += gradient.size();
    }
    Require(session_.Initialize(zeros));
    for (size_t i = 0; i < tensors_.size(); ++i) GiveGradient(i);
    Require(session_.Pull());
  }

  // From one step's last gradient to the next one's.
  double Step(const DeviceTimes& times) {
    return SecondsOf([&] {
      Stream to_device, compute, to_host;
      const double second_of_byte = times.copies / static_cast<double>(bytes_);
      if (begun_) Require(session_.PullAhead());
      for (size_t i = 0; i < tensors_.size(); ++i) {
        absl::Time landed = SteadyNow();
        ForPieces(i, times.piece / 2, [&](size_t begin, size_t end) {
          if (begun_) Require(session_.AwaitParameterUntil(i, end));
          landed = to_device.End(SteadyNow(), second_of_byte * static_cast<double>(end - begin));
        });
        compute.End(landed, times.compute / 3 * tensors_[i].products / products_);
      }
      if (!session_.NextStep().has_value()) Require(absl::InternalError("no step is left"));
      for (size_t i = tensors_.size(); i-- > 0;) {
        const absl::Time computed = compute.End(
            absl::InfinitePast(), times.compute * 2 / 3 * tensors_[i].products / products_);
        if (times.leaves_out_zeros && tensors_[i].products == 0) {
          SleepUntil(to_host.End(
              computed,
              second_of_byte * static_cast<double>(session_.gradient(i).size()) / kOneRowOf));
          Require(session_.PushNonzero(i, nonzero_));
          continue;
        }
        ForPieces(i, times.piece, [&](size_t begin, size_t end) {
          SleepUntil(to_host.End(computed, second_of_byte * static_cast<double>(end - begin)));
          const bool whole = end == session_.gradient(i).size();
          Require(whole ? session_.Push(i) : session_.PushUntil(i, end));
        });
      }
      Require(session_.Complete(0).status());
      begun_ = true;
    });
  }

  // Until the shard has nothing left to do.
  void Settle() {
    Require(session_.PullAhead());
    for (size_t i = 0; i < tensors_.size(); ++i) Require(session_.AwaitParameter(i));
    begun_ = false;
  }

  double ShardWork() const { return Require(SecondsOfShardWork(worker_->cluster())); }

 private:
  static constexpr size_t kOneRowOf = 50;

  // Of what is looked up every fiftieth row has been.
  void GiveGradient(size_t tensor) {
    const absl::Span<std::byte> bytes = session_.gradient(tensor);
    const absl::Span<float> gradient(reinterpret_cast<float*>(bytes.data()),
                                     bytes.size() / sizeof(float));
    if (tensors_[tensor].products > 0) return std::fill(gradient.begin(), gradient.end(), 1e-3F);
    const auto row = static_cast<size_t>(tensors_[tensor].shape.back());
    for (size_t begin = 0; begin < gradient.size(); begin += kOneRowOf * row) {
      std::fill_n(gradient.begin() + begin, row, 1e-3F);
    }
    nonzero_ = FindNonzero(bytes, sizeof(float));
  }

  void ForPieces(size_t tensor, size_t piece, absl::FunctionRef<void(size_t, size_t)> each) {
    const size_t all = session_.gradient(tensor).size();
    const size_t most = piece > 0 ? piece : all;
    for (size_t begin = 0; begin < all; begin += most) each(begin, std::min(all, begin + most));
  }

  // What is nearer cannot be slept.
  static void SleepUntil(absl::Time time) {
    const absl::Duration left = time - SteadyNow();
    if (left > absl::Microseconds(100)) absl::SleepFor(left);
  }

  const std::vector<Tensor> tensors_;
  const std::unique_ptr<LoopbackWorker> worker_;
  Session& session_;
  double products_ = 0;
  size_t bytes_ = 0;
  std::string nonzero_;  // of the gradient that is mostly zeros
  bool begun_ = false;
};

int Main(int argc, char** argv) {
  CLI::App app("A step beside a shard, with updates ahead of the verdict and without.");
  std::string coordinator;
  std::string shard;
  uint64_t steps = 20;
  double compute_ms = 0;
  double copies_ms = 0;
  app.add_option("coordinator", coordinator, "The program")->required();
  app.add_option("shard", shard, "The program")->required();
  app.add_option("--steps", steps, "To measure; medians are told");
  app.add_option("--compute_ms", compute_ms, "Of a worker's step; 0: 0.6 of the shard's work");
  app.add_option("--copies_ms", copies_ms, "Each way; 0: 0.24 of the shard's work");
  CLI11_PARSE(app, argc, argv);

  constexpr uint64_t kWarmUp = 3;
  constexpr uint64_t kAtATime = 5;
  constexpr size_t kPiece = 8 << 20;
  const uint64_t all = 4 * (steps + kAtATime) + kWarmUp;
  Worker without(coordinator, shard, /*ahead=*/false, all);
  Worker with(coordinator, shard, /*ahead=*/true, all);
  for (uint64_t step = 0; step < kWarmUp; ++step) {
    without.Step({});
    with.Step({});
  }
  with.Settle();
  absl::SleepFor(absl::Seconds(2));  // the shard makes room for updates ahead
  const double before = without.ShardWork();
  for (uint64_t step = 0; step < steps; ++step) without.Step({});
  without.Settle();
  const double work = (without.ShardWork() - before) / static_cast<double>(steps);
  DeviceTimes whole;
  whole.compute = compute_ms > 0 ? compute_ms * 1e-3 : 0.6 * work;
  whole.copies = copies_ms > 0 ? copies_ms * 1e-3 : 0.24 * work;
  DeviceTimes pieces = whole;
  pieces.piece = kPiece;
  DeviceTimes rows = pieces;
  rows.leaves_out_zeros = true;

  // A few steps of the one, then of the other: what a shard has to do yet when a step ends is done
  // in the next one.
  struct Way {
    const char* what;
    Worker& worker;
    const DeviceTimes& times;
    std::vector<double> seconds;
  };
  Way ways[] = {{"a step", without, whole, {}},
                {"in pieces of 8 and 4 MiB", without, pieces, {}},
                {"with update_ahead", with, whole, {}},
                {"with update_ahead, in pieces", with, pieces, {}},
                {"with update_ahead, in pieces without zeros", with, rows, {}}};
  for (uint64_t step = 0; step < steps; step += kAtATime) {
    for (Way& way : ways) {
      for (uint64_t k = 0; k < kAtATime; ++k) {
        const double one = way.worker.Step(way.times);
        if (k > 0) way.seconds.push_back(one);
      }
      way.worker.Settle();
    }
  }
  const double longest = std::max({work, whole.compute, whole.copies});
  std::printf("a transformer's 77.9 million parameters, Adam, one worker and one shard\n");
  const auto say = [&](const char* what, double seconds) {
    std::printf("  %-44s %8.1f ms   %5.2f\n", what, seconds * 1e3, seconds / longest);
  };
  say("the device's forward and backward", whole.compute);
  say("its copies, each way", whole.copies);
  say("the shard's work on a step, alone", work);
  for (const Way& way : ways) say(way.what, Median(way.seconds));
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
