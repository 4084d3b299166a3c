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
#include <ATen/ops/empty.h>
#include <torch/optim/adam.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "client/torch/named_tensors.h"
#include "client/trace.h"
#include "common/clock/steady_now.h"
#include "tests/parity/device_without_copies.h"
#include "tests/parity/loopback_cluster.h"
#include "tests/parity/shard_work.h"
#include "tests/parity/still_session.h"
#include "worker/autocast.h"
#include "worker/batch_tensors.h"
#include "worker/data/in_memory_source.h"
#include "worker/device/gradient_path.h"
#include "worker/device/parameter_path.h"
#include "worker/device/plugin_loader.h"
#include "worker/device/timed_device.h"
#include "worker/device_binding.h"
#include "worker/local_compute.h"
#include "worker/loss.h"
#include "worker/models/network.h"
#include "worker/stream_trace.h"
#include "worker/trainer.h"

namespace parley {
namespace {

constexpr double kMostCompute = 1.03;
constexpr double kLeastCopies = 0.9;
constexpr double kMostStep = 1.10;
// Steps with a shard until all memory is there that both use step after step, and pinned.
constexpr uint64_t kWarmUp = 40;

struct Setting {
  std::string model;           // of the job file
  std::vector<int64_t> image;  // empty: text
  int64_t classes = 10;
  uint64_t batch = 0;
};

// ResNet-50, 25 million parameters, on images of ImageNet's size; the course's transformer, of 77.9
// million; and one that is small enough to try this program out.
Setting SettingOf(const std::string& model) {
  if (model == "resnet50") return {"resnet { depth: 50 classes: 1000 }", {3, 224, 224}, 1000, 64};
  if (model == "transformer") {
    return {"transformer { width: 1024 heads: 8 hidden: 1024 layers: 3 }", {}, 28782, 32};
  }
  return {"simple_cnn {}", {1, 28, 28}, 10, 100};
}

Datasets RandomData(const Setting& setting) {
  std::mt19937 random(1);
  if (setting.image.empty()) {
    constexpr uint64_t kTexts = 2000;
    constexpr int64_t kLength = 35;
    const SampleLayout layout = {I64, {kLength}, setting.classes};
    const auto tokens = [&] {
      std::vector<int64_t> numbers(kTexts * kLength);
      for (int64_t& number : numbers) {
        number = static_cast<int64_t>(random() % static_cast<uint32_t>(setting.classes));
      }
      std::vector<std::byte> bytes(numbers.size() * sizeof(int64_t));
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
      return bytes;
    };
    return {std::make_shared<RowSource>(kTexts, layout, layout, tokens(), tokens()), nullptr};
  }
  constexpr size_t kImages = 1000;
  size_t pixels_of_one = 1;
  for (const int64_t extent : setting.image) pixels_of_one *= static_cast<size_t>(extent);
  std::vector<uint8_t> pixels(kImages * pixels_of_one);
  std::vector<uint8_t> labels(kImages);
  for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random());
  for (uint8_t& label : labels) label = static_cast<uint8_t>(random() % 10);
  return {std::make_shared<PixelSource>(setting.image, std::move(pixels), std::move(labels), 0.5F,
                                        0.25F),
          nullptr};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double SecondsSince(absl::Time begin) { return absl::ToDoubleSeconds(SteadyNow() - begin); }

// Any error ends the program: there is nothing to measure then.
void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

absl::Time Soon() { return SteadyNow() + absl::Minutes(1); }

void Finish(ComputeDevice& device, StreamId stream) {
  const auto event = device.MakeEvent();
  Check(event.status());
  Check(device.Record(**event, stream));
  Check(device.Await(**event, Soon()));
}

// The loop that one would write without parley.
class PlainLoop {
 public:
  PlainLoop(const JobConfig& job, const Datasets& data, ComputeDevice& device)
      : job_(job),
        data_(data),
        device_(device),
        where_(device.torch_device()),
        network_(*MakeNetwork(job, data.train->x())) {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& named : network_->Tensors()) {
      at::Tensor tensor = named.tensor;
      tensor.set_data(tensor.to(where_));
    }
    for (int i = 0; i < 4; ++i) MakeBatch();
  }

  // Median seconds of a step's forward and backward.
  double Run(uint64_t steps) {
    std::vector<double> seconds;
    for (uint64_t step = 0; step < steps; ++step) {
      const absl::Time begin = SteadyNow();
      Step();
      Finish(device_, StreamId::kCompute);
      seconds.push_back(SecondsSince(begin));
    }
    return Median(seconds);
  }

 private:
  // As a loader's processes would have it ready.
  void MakeBatch() {
    const SampleLayout& x_layout = data_.train->x();
    const SampleLayout& y_layout = data_.train->y();
    Draw draw;
    for (uint64_t i = 0; i < job_.data().batch(); ++i) {
      draw.samples.push_back(random_() % data_.train->size());
    }
    std::vector<std::byte> x_bytes(draw.samples.size() * x_layout.bytes());
    std::vector<std::byte> y_bytes(draw.samples.size() * y_layout.bytes());
    Check(data_.train->Fill(draw, absl::MakeSpan(x_bytes), absl::MakeSpan(y_bytes)));
    at::Tensor x = BatchTensor(x_layout, draw.samples.size(), absl::MakeSpan(x_bytes));
    at::Tensor y = BatchTensor(y_layout, draw.samples.size(), absl::MakeSpan(y_bytes));
    // A fake device has no pinned memory.
    const bool pin = where_.is_cuda();
    batches_.emplace_back(pin ? x.pin_memory() : x.clone(), pin ? y.pin_memory() : y.clone());
  }

  void Step() {
    const auto& [here_x, here_y] = batches_[step_++ % batches_.size()];
    const at::Tensor x = here_x.to(where_, /*non_blocking=*/true);
    const at::Tensor y = here_y.to(where_, /*non_blocking=*/true);
    at::Tensor outputs;
    {
      const AutocastScope scope(job_.precision(), where_.type());
      outputs = network_->Forward(x);
    }
    for (const NamedTensor& named : network_->Tensors()) named.tensor.mutable_grad() = at::Tensor();
    ComputeLoss(CROSS_ENTROPY, outputs.to(c10::kFloat), y).backward();
  }

  const JobConfig& job_;
  const Datasets& data_;
  ComputeDevice& device_;
  const at::Device where_;
  std::mt19937_64 random_{1};
  const std::unique_ptr<Network> network_;
  std::vector<std::pair<at::Tensor, at::Tensor>> batches_;
  size_t step_ = 0;
};

// Mean milliseconds of a worker's phases since `before`, to see where a step's time went.
void SayPhases(const char* what, const TrainingMetrics& metrics, uint64_t steps,
               const std::vector<PhaseSeconds>& before = {}) {
  std::printf("  %s:", what);
  const std::vector<PhaseSeconds> now = metrics.seconds();
  for (size_t i = 0; i < now.size(); ++i) {
    const double seconds = now[i].seconds() - (before.empty() ? 0 : before[i].seconds());
    std::printf(" %s %.2f", now[i].phase().c_str(), seconds / static_cast<double>(steps) * 1e3);
  }
  std::printf(" ms\n");
}

// Seconds to bring so many bytes to the host, and back.
struct CopyTimes {
  double to_host = 0;
  double to_device = 0;
};

// One copy of all, the best of several.
CopyTimes LargeCopies(ComputeDevice& device, size_t bytes) {
  auto there = device.Allocate("benchmark", bytes);
  Check(there.status());
  auto here = device.AllocatePinned("benchmark", bytes);
  Check(here.status());
  CopyTimes best = {1e9, 1e9};
  for (int i = 0; i < 10; ++i) {
    absl::Time begin = SteadyNow();
    Check(device.CopyToHost(StreamId::kToHost, here->data(), there->data(), bytes));
    Finish(device, StreamId::kToHost);
    best.to_host = std::min(best.to_host, SecondsSince(begin));
    begin = SteadyNow();
    Check(device.CopyToDevice(StreamId::kToDevice, there->data(), here->data(), bytes));
    Finish(device, StreamId::kToDevice);
    best.to_device = std::min(best.to_device, SecondsSince(begin));
  }
  return best;
}

// In buckets, by a worker's own ways; the host does nothing with what comes. Medians.
CopyTimes WorkersCopies(ComputeDevice& device, size_t bytes) {
  const size_t gradients = DeviceBinding::Options().bucket_elements * sizeof(float);
  const size_t values = DeviceBinding::Options().staged_values * sizeof(float);
  auto there = device.Allocate("benchmark", std::max(gradients, values));
  Check(there.status());
  const auto piece = [&](size_t bucket) {
    return Piece{reinterpret_cast<float*>(there->data()), 0, bucket / sizeof(float)};
  };
  const auto buckets = [&](size_t bucket) { return std::max<size_t>(bytes / bucket, 1); };
  const auto out = GradientPath::Make(device, {gradients, 2, buckets(gradients)});
  Check(out.status());
  const auto in = ParameterPath::Make(device, {values, 2, 4});
  Check(in.status());
  std::vector<double> to_host;
  std::vector<double> to_device;
  for (int i = 0; i < 10; ++i) {
    absl::Time begin = SteadyNow();
    for (size_t bucket = 0; bucket < buckets(gradients); ++bucket) {
      Check((*out)->Send(bucket, {piece(gradients)}, 1, BucketType::kFloat32, gradients, Soon()));
    }
    while (true) {
      const auto more = (*out)->Deliver(
          Soon(), [](size_t, absl::Span<const std::byte>) { return absl::OkStatus(); });
      Check(more.status());
      if (!*more) break;
    }
    to_host.push_back(SecondsSince(begin));
    begin = SteadyNow();
    for (size_t bucket = 0; bucket < buckets(values); ++bucket) {
      Check((*in)->Bring({piece(values)}, BucketType::kFloat32, values, Soon(),
                         [](absl::Span<std::byte>) { return absl::OkStatus(); }));
    }
    Finish(device, StreamId::kCompute);
    to_device.push_back(SecondsSince(begin));
  }
  const auto all = [&](size_t bucket) {
    return static_cast<double>(bytes) / static_cast<double>(buckets(bucket) * bucket);
  };
  return {Median(to_host) * all(gradients), Median(to_device) * all(values)};
}

// How a worker looks at its streams: in one step of so many.
TimedDevice::Options AsInAWorker() {
  return {64, [](const std::vector<TimedDevice::Work>&) {}};
}

TimedDevice::Options EachStepInto(const std::shared_ptr<Trace>& trace) {
  return {1, [trace](const std::vector<TimedDevice::Work>& works) { TraceStreams(works, *trace); }};
}

// A worker's steps with nobody to send them to: median seconds of one.
double ComputeAlone(const JobConfig& job, const Datasets& data, ComputeDevice& device,
                    uint64_t steps) {
  const auto network = MakeNetwork(job, data.train->x());
  Check(network.status());
  StillSession session(data.train->size(), job.data().batch());
  Metrics metrics;
  TrainingMetrics training_metrics(metrics);
  TimedDevice timed(device, AsInAWorker());
  LocalCompute compute({job, **network, data, session, training_metrics, &timed});
  Check(compute.Attach());
  std::vector<double> seconds;
  for (uint64_t step = 0; step < steps; ++step) {
    compute.Expect(session.Ahead(compute.steps_ahead()));
    const absl::Time begin = SteadyNow();
    Check(compute.Step(*session.NextStep()).status());
    seconds.push_back(SecondsSince(begin));
  }
  SayPhases("a worker's step with nobody to send to, means", training_metrics, steps);
  return Median(seconds);
}

// A worker's session and the shard of it, as processes and thread of this machine.
struct Joined {
  Joined(const std::string& coordinator, const std::string& shard, const std::string& job_text,
         const std::shared_ptr<Trace>& trace)
      : cluster(coordinator, shard, job_text), connector(MakeLocalConnector(MakeGrpcConnector())) {
    Session::Options options;
    options.job = cluster.job();
    options.coordinator = cluster.coordinator();
    options.address = options.metrics_address = "127.0.0.1:1";
    options.trace = trace;
    auto joined = Session::Join(options, *connector);
    Check(joined.status());
    session = *std::move(joined);
  }

  LoopbackCluster cluster;
  const std::unique_ptr<Connector> connector;
  std::unique_ptr<Session> session;
};

double SecondsOfWork(const LoopbackCluster& cluster) {
  const auto work = SecondsOfShardWork(cluster);
  Check(work.status());
  return *work;
}

// Mean seconds of a shard's work on a step with these gradients, where nobody computes, copies or
// reads what it has made: all of it is awaited.
double ShardAlone(const std::string& coordinator, const std::string& shard,
                  const std::string& job_text, const Datasets& data) {
  const Joined joined(coordinator, shard, job_text, nullptr);
  Session& session = *joined.session;
  const auto network = MakeNetwork(joined.cluster.job(), data.train->x());
  Check(network.status());
  const auto specs = SpecsOf((*network)->Tensors());
  Check(specs.status());
  Check(session.Register(*specs, data.train->size(), 0));
  std::vector<absl::Span<const std::byte>> values;
  for (size_t i = 0; i < specs->size(); ++i) {
    const absl::Span<std::byte> gradient = session.gradient(i);
    std::memset(gradient.data(), 0, gradient.size());
    if ((*specs)[i].dtype() == F32) {
      std::fill_n(reinterpret_cast<float*>(gradient.data()), gradient.size() / sizeof(float),
                  1e-3F);
    }
    values.push_back(gradient);
  }
  Check(session.Initialize(values));
  Check(session.Pull());
  const uint64_t steps = joined.cluster.job().steps() - kWarmUp - 1;
  double before = 0;
  for (uint64_t step = 0; step < kWarmUp + steps; ++step) {
    if (step == kWarmUp) before = SecondsOfWork(joined.cluster);
    if (!session.NextStep().has_value()) Check(absl::InternalError("no step is left"));
    for (size_t i = 0; i < specs->size(); ++i) Check(session.Push(i));
    Check(session.Complete(0).status());
    Check(session.PullAhead());
    for (size_t i = 0; i < specs->size(); ++i) Check(session.AwaitParameter(i));
  }
  return (SecondsOfWork(joined.cluster) - before) / static_cast<double>(steps);
}

struct WithShard {
  double step = 0;    // median seconds
  double update = 0;  // the shard's work on one, mean seconds
};

// All of it, over shared memory.
WithShard TrainWithAShard(const std::string& coordinator, const std::string& shard,
                          const std::string& job_text, const Datasets& data, ComputeDevice& device,
                          const std::shared_ptr<Trace>& trace = nullptr) {
  const Joined joined(coordinator, shard, job_text, trace);
  const JobConfig& job = joined.cluster.job();
  const auto network = MakeNetwork(job, data.train->x());
  Check(network.status());
  Metrics metrics;
  TrainingMetrics training_metrics(metrics, trace);
  Log log(LogFormat::kText, "benchmark");
  WithShard found;
  std::vector<double> seconds;
  absl::Time begin = absl::InfinitePast();
  uint64_t step = 0;
  double worked_before = 0;
  std::vector<PhaseSeconds> phases_before;
  const uint64_t steps = job.steps() - kWarmUp - 1;
  const auto before_step = [&] {
    ++step;
    if (step > kWarmUp + 1) seconds.push_back(SecondsSince(begin));
    if (step == kWarmUp + 1 || step == job.steps()) {
      const double work = SecondsOfWork(joined.cluster);
      if (step == job.steps()) {
        found.update = (work - worked_before) / static_cast<double>(steps);
        SayPhases("a worker's step with the shard, means", training_metrics, steps, phases_before);
      } else {
        worked_before = work;
        phases_before = training_metrics.seconds();
      }
    }
    begin = SteadyNow();
    return std::string();
  };
  TimedDevice timed(device, trace == nullptr ? AsInAWorker() : EachStepInto(trace));
  LocalCompute compute(
      {job, **network, data, *joined.session, training_metrics, &timed, nullptr, &log});
  Trainer trainer({job, compute, *joined.session, training_metrics, log, before_step});
  Check(trainer.Run());
  timed.Flush();
  found.step = Median(seconds);
  return found;
}

bool Say(const char* what, double ratio, const char* bound, bool met) {
  std::printf("  %-52s %.3f  (%s)%s\n", what, ratio, bound, met ? "" : "  NOT MET");
  return met;
}

int Run(const std::string& coordinator, const std::string& shard, const std::string& plugin_path,
        const Setting& setting, const std::string& precision, bool cuda_graphs, uint64_t steps,
        const std::string& trace_file) {
  const auto plugin = LoadDevicePlugin(plugin_path);
  Check(plugin.status());
  const auto device = (*plugin)->open(0);
  Check(device.status());
  const std::string text = absl::StrCat(
      "seed: 1\nmodel { ", setting.model, " }\ndata { ",
      setting.image.empty() ? "text { train: \"none\" }" : "own {}", " batch: ", setting.batch,
      " }\noptimizer { adam { rate: 0.001 } }\ndevice: CUDA\nprecision: ", precision,
      cuda_graphs ? "\ncuda_graphs: true" : "", "\nsteps: ", steps + kWarmUp + 1,
      "\ncluster { workers: 1 shards: 1 }\ncheckpoint { at_end: false }\n");
  JobConfig job;
  {
    const LoopbackCluster only_the_job(coordinator, shard, text);
    job = only_the_job.job();
  }
  if (job.name().empty()) return 1;  // it is refused, and has been told why
  const Datasets data = RandomData(setting);
  uint64_t parameters = 0;
  for (const NamedTensor& named : (*MakeNetwork(job, data.train->x()))->Tensors()) {
    if (!named.buffer) parameters += static_cast<uint64_t>(named.tensor.numel());
  }
  const size_t bytes = parameters * sizeof(float);
  std::printf(
      "%s: %s\n%.1f million parameters, batch %d, %s, %d steps; a shard with %u cores\n",
      (*device)->name().c_str(), setting.model.c_str(), static_cast<double>(parameters) / 1e6,
      static_cast<int>(setting.batch),
      cuda_graphs ? absl::StrCat(precision, ", as a CUDA graph").c_str() : precision.c_str(),
      static_cast<int>(steps), std::thread::hardware_concurrency());

  const std::string ahead_text =
      absl::StrCat(text, "consistency { sync { update_ahead: true } }\n");
  // float16 has all gradients of a step looked at before it is decided.
  const bool can_be_ahead = !cuda_graphs && !job.optimizer().skip_nonfinite();
  if (!trace_file.empty()) {
    const auto trace = std::make_shared<Trace>();
    const WithShard traced = TrainWithAShard(coordinator, shard, can_be_ahead ? ahead_text : text,
                                             data, **device, trace);
    std::printf("  a step, traced: %.2f ms, the shard's work %.2f ms\n", traced.step * 1e3,
                traced.update * 1e3);
    Check(trace->WriteTo(trace_file, "gpu_benchmark"));
    return 0;
  }
  const CopyTimes large = LargeCopies(**device, bytes);
  const CopyTimes worker = WorkersCopies(**device, bytes);
  double plain = 0;
  {
    PlainLoop loop(job, data, **device);
    loop.Run(5);
    plain = loop.Run(steps);
  }
  DeviceWithoutCopies without_copies(**device);
  ComputeAlone(job, data, **device, 5);
  const double alone = ComputeAlone(job, data, without_copies, steps);
  const double with_copies = ComputeAlone(job, data, **device, steps);
  // A graph's gradients leave when it has ended: that it is not faster beside a shard is known.
  WithShard with;
  double shard_alone = 0;
  if (!cuda_graphs) shard_alone = ShardAlone(coordinator, shard, text, data);
  if (!cuda_graphs) with = TrainWithAShard(coordinator, shard, text, data, **device);
  WithShard ahead = with;
  if (can_be_ahead) {
    ahead = TrainWithAShard(coordinator, shard, ahead_text, data, **device);
  }

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
