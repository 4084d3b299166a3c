// What a GPU makes of a worker's step, each part against what limits it (docs/gpu.md):
//
//   copies   pinned buckets both ways, as a worker copies them, against one large copy
//   compute  a worker's step with nobody to send to, without its copies to the host, against a
//            plain LibTorch loop's forward and backward with batches that lie in pinned memory;
//            with the copies it is told
//   step     with a shard on this machine, without sync.update_ahead and where it can be with it
//            (a job chooses), against the longest of: the plain loop's forward and backward, the
//            copies both ways, the shard's work on a step; each measured alone
//
//   gpu_benchmark COORDINATOR SHARD PLUGIN [--model=resnet50|transformer|cnn]
//                 [--precision=FLOAT32|BFLOAT16_AUTOCAST|FLOAT16_AUTOCAST] [--steps=N] [--batch=N]
//                 [--trace=FILE]
//
// With --trace only steps with a shard, that updates ahead where it can, whose every stream is
// looked at, into FILE (client/trace.h); they take a little longer so.
//
// Ends with 1 where a ratio is worse than docs/gpu.md says.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/trace.h"
#include "tests/benchmarks/require.h"
#include "tests/parity/gpu/copy_times.h"
#include "tests/parity/gpu/device_without_copies.h"
#include "tests/parity/gpu/plain_loop.h"
#include "tests/parity/gpu/setting.h"
#include "tests/parity/gpu/worker_steps.h"
#include "tests/parity/job_text.h"
#include "worker/device/plugin_loader.h"
#include "worker/models/network.h"

namespace parley {
namespace {

constexpr double kMostCompute = 1.03;
constexpr double kLeastCopies = 0.9;
constexpr double kMostStep = 1.10;

bool Say(const char* what, double ratio, const char* bound, bool met) {
  std::printf("  %-52s %.3f  (%s)%s\n", what, ratio, bound, met ? "" : "  NOT MET");
  return met;
}

int Run(const std::string& coordinator, const std::string& shard, const std::string& plugin_path,
        const Setting& setting, const std::string& precision, bool cuda_graphs, uint64_t steps,
        const std::string& trace_file) {
  const auto plugin = Require(LoadDevicePlugin(plugin_path));
  const auto device = Require(plugin->open(0));
  const std::string text = absl::StrCat(
      "seed: 1\nmodel { ", setting.model, " }\ndata { ",
      setting.image.empty() ? "text { train: \"none\" }" : "own {}", " batch: ", setting.batch,
      " }\noptimizer { adam { rate: 0.001 } }\ndevice: CUDA\nprecision: ", precision,
      cuda_graphs ? "\ncuda_graphs: true" : "", "\nsteps: ", steps + kStepsBesideAShard,
      "\ncluster { workers: 1 shards: 1 }\ncheckpoint { at_end: false }\n");
  const JobConfig job = JobFromText(text);
  if (job.name().empty()) return 1;  // it is refused, and has been told why
  const Datasets data = RandomData(setting);
  uint64_t parameters = 0;
  for (const NamedTensor& named : (*MakeNetwork(job, data.train->x()))->Tensors()) {
    if (!named.buffer) parameters += static_cast<uint64_t>(named.tensor.numel());
  }
  const size_t bytes = parameters * sizeof(float);
  std::printf(
      "%s: %s\n%.1f million parameters, batch %d, %s, %d steps; a shard with %u cores\n",
      device->name().c_str(), setting.model.c_str(), static_cast<double>(parameters) / 1e6,
      static_cast<int>(setting.batch),
      cuda_graphs ? absl::StrCat(precision, ", as a CUDA graph").c_str() : precision.c_str(),
      static_cast<int>(steps), std::thread::hardware_concurrency());

  const BesideAShard in_order = {coordinator, shard, text};
  const BesideAShard with_ahead = {
      coordinator, shard, absl::StrCat(text, "consistency { sync { update_ahead: true } }\n")};
  // float16 has all gradients of a step looked at before it is decided.
  const bool can_be_ahead = !cuda_graphs && !job.optimizer().skip_nonfinite();
  if (!trace_file.empty()) {
    const auto trace = std::make_shared<Trace>();
    const WithShard traced =
        TrainWithAShard(can_be_ahead ? with_ahead : in_order, data, *device, trace);
    std::printf("  a step, traced: %.2f ms, the shard's work %.2f ms\n", traced.step * 1e3,
                traced.update * 1e3);
    Require(trace->WriteTo(trace_file, "gpu_benchmark"));
    return 0;
  }
  const CopyTimes large = LargeCopies(*device, bytes);
  const CopyTimes worker = WorkersCopies(*device, bytes);
  double plain = 0;
  {
    PlainLoop loop(job, data, *device);
    loop.Run(5);
    plain = loop.Run(steps);
  }
  DeviceWithoutCopies without_copies(*device);
  ComputeAlone(job, data, *device, 5);
  const double alone = ComputeAlone(job, data, without_copies, steps);
  const double with_copies = ComputeAlone(job, data, *device, steps);
  // A graph's gradients leave when it has ended: that it is not faster beside a shard is known.
  WithShard with;
  double shard_alone = 0;
  if (!cuda_graphs) {
    shard_alone = ShardAlone(in_order, data);
    with = TrainWithAShard(in_order, data, *device);
  }
  WithShard ahead = with;
  if (can_be_ahead) ahead = TrainWithAShard(with_ahead, data, *device);

  const auto ms = [](const char* what, double seconds) {
    std::printf("  %-52s %8.2f ms\n", what, seconds * 1e3);
  };
  ms("one large copy to the host, to the device", large.to_host);
  ms("", large.to_device);
  ms("in buckets to the host, to the device", worker.to_host);
  ms("", worker.to_device);
  ms("plain LibTorch loop: forward and backward", plain);
  ms("a worker's step with nobody to send to", alone);
  ms("the same, gradients brought to the host", with_copies);
  if (!cuda_graphs) {
    ms("the shard's work on a step, alone", shard_alone);
    ms("the same, beside a worker", with.update);
    ms("a step with the shard", with.step);
    if (can_be_ahead) ms("the same, with updates ahead", ahead.step);
  }
  const double limit = std::max({plain, large.to_host + large.to_device, shard_alone});
  bool met = Say("copies to the host, of the large one's speed", large.to_host / worker.to_host,
                 "at least 0.9", large.to_host / worker.to_host >= kLeastCopies);
  met &= Say("copies to the device", large.to_device / worker.to_device, "at least 0.9",
             large.to_device / worker.to_device >= kLeastCopies);
  met &= Say("a worker's compute, of the plain loop's time", alone / plain, "at most 1.03",
             alone / plain <= kMostCompute);
  if (cuda_graphs) return met ? 0 : 1;
  const auto say = [&](const char* what, double step) {
    std::printf("  %-52s %.3f\n", what, step / limit);
  };
  say("a step, of the longest part's time", with.step);
  if (can_be_ahead) say("a step with updates ahead", ahead.step);
  const double better = std::min(with.step, ahead.step);  // a job says which
  met &= Say("the better one", better / limit, "at most 1.10", better / limit <= kMostStep);
  return met ? 0 : 1;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  CLI::App app("A worker's step on a GPU, each part against what limits it");
  std::string coordinator;
  std::string shard;
  std::string plugin;
  std::string model = "resnet50";
  std::string precision = "FLOAT32";
  bool cuda_graphs = false;
  uint64_t steps = 50;
  uint64_t batch = 0;
  std::string trace;
  app.add_option("coordinator", coordinator)->required();
  app.add_option("shard", shard)->required();
  app.add_option("plugin", plugin)->required();
  app.add_option("--model", model)->check(CLI::IsMember({"resnet50", "transformer", "cnn"}));
  app.add_option("--precision", precision)
      ->check(CLI::IsMember({"FLOAT32", "BFLOAT16_AUTOCAST", "FLOAT16_AUTOCAST"}));
  app.add_flag("--cuda_graphs", cuda_graphs, "A worker's steps are CUDA graphs");
  app.add_option("--steps", steps, "Of each loop");
  app.add_option("--batch", batch, "Samples of a step");
  app.add_option("--trace", trace, "Only steps with updates ahead, into this file");
  CLI11_PARSE(app, argc, argv);
  parley::Setting setting = parley::SettingOf(model);
  if (batch != 0) setting.batch = batch;
  return parley::Run(coordinator, shard, plugin, setting, precision, cuda_graphs, steps, trace);
}
