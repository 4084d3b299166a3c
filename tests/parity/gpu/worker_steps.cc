#include "tests/parity/gpu/worker_steps.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "client/torch/named_tensors.h"
#include "common/clock/steady_now.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/loopback_worker.h"
#include "tests/parity/shard_work.h"
#include "tests/parity/still_session.h"
#include "worker/device/timed_device.h"
#include "worker/local_compute.h"
#include "worker/models/network.h"
#include "worker/stream_trace.h"
#include "worker/trainer.h"

namespace parley {
namespace {

constexpr uint64_t kWarmUp = kStepsBesideAShard - 1;

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

// How a worker looks at its streams: in one step of so many.
TimedDevice::Options AsInAWorker() {
  return {64, [](const std::vector<TimedDevice::Work>&) {}};
}

TimedDevice::Options EachStepInto(const std::shared_ptr<Trace>& trace) {
  return {1, [trace](const std::vector<TimedDevice::Work>& works) { TraceStreams(works, *trace); }};
}

}  // namespace

double ComputeAlone(const JobConfig& job, const Datasets& data, ComputeDevice& device,
                    uint64_t steps) {
  const auto network = Require(MakeNetwork(job, data.train->x()));
  StillSession session(data.train->size(), job.data().batch());
  Metrics metrics;
  TrainingMetrics training_metrics(metrics);
  TimedDevice timed(device, AsInAWorker());
  LocalCompute compute({job, *network, data, session, training_metrics, &timed});
  Require(compute.Attach());
  std::vector<double> seconds;
  for (uint64_t step = 0; step < steps; ++step) {
    compute.Expect(session.Ahead(compute.steps_ahead()));
    const absl::Time begin = SteadyNow();
    Require(compute.Step(*session.NextStep()).status());
    seconds.push_back(SecondsSince(begin));
  }
  SayPhases("a worker's step with nobody to send to, means", training_metrics, steps);
  return Median(seconds);
}

double ShardAlone(const BesideAShard& with, const Datasets& data) {
  const auto worker = Require(LoopbackWorker::Join(with.coordinator, with.shard, with.job_text));
  Session& session = worker->session();
  const JobConfig& job = worker->job();
  const auto network = Require(MakeNetwork(job, data.train->x()));
  const std::vector<TensorSpec> specs = Require(SpecsOf(network->Tensors()));
  Require(session.Register(specs, data.train->size(), 0));
  std::vector<absl::Span<const std::byte>> values;
  for (size_t i = 0; i < specs.size(); ++i) {
    const absl::Span<std::byte> gradient = session.gradient(i);
    std::memset(gradient.data(), 0, gradient.size());
    if (specs[i].dtype() == F32) {
      std::fill_n(reinterpret_cast<float*>(gradient.data()), gradient.size() / sizeof(float),
                  1e-3F);
    }
    values.push_back(gradient);
  }
  Require(session.Initialize(values));
  Require(session.Pull());
  const uint64_t steps = job.steps() - kStepsBesideAShard;
  double before = 0;
  for (uint64_t step = 0; step < kWarmUp + steps; ++step) {
    if (step == kWarmUp) before = Require(SecondsOfShardWork(worker->cluster()));
    if (!session.NextStep().has_value()) Require(absl::InternalError("no step is left"));
    for (size_t i = 0; i < specs.size(); ++i) Require(session.Push(i));
    Require(session.Complete(0).status());
    Require(session.PullAhead());
    for (size_t i = 0; i < specs.size(); ++i) Require(session.AwaitParameter(i));
  }
  return (Require(SecondsOfShardWork(worker->cluster())) - before) / static_cast<double>(steps);
}

WithShard TrainWithAShard(const BesideAShard& with, const Datasets& data, ComputeDevice& device,
                          const std::shared_ptr<Trace>& trace) {
  const auto worker =
      Require(LoopbackWorker::Join(with.coordinator, with.shard, with.job_text, trace));
  Session& session = worker->session();
  const JobConfig& job = worker->job();
  const auto network = Require(MakeNetwork(job, data.train->x()));
  Metrics metrics;
  TrainingMetrics training_metrics(metrics, trace);
  Log log(LogFormat::kText, "benchmark");
  WithShard found;
  std::vector<double> seconds;
  absl::Time begin = absl::InfinitePast();
  uint64_t step = 0;
  double worked_before = 0;
  std::vector<PhaseSeconds> phases_before;
  const uint64_t steps = job.steps() - kStepsBesideAShard;
  const auto before_step = [&] {
    ++step;
    if (step > kWarmUp + 1) seconds.push_back(SecondsSince(begin));
    if (step == kWarmUp + 1 || step == job.steps()) {
      const double work = Require(SecondsOfShardWork(worker->cluster()));
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
  LocalCompute compute({job, *network, data, session, training_metrics, &timed, nullptr, &log});
  Trainer trainer({job, compute, session, training_metrics, log, before_step});
  Require(trainer.Run());
  timed.Flush();
  found.step = Median(seconds);
  return found;
}

}  // namespace parley
