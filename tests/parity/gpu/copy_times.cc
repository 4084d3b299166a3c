#include "tests/parity/gpu/copy_times.h"

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "common/clock/steady_now.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/gpu/finish.h"
#include "worker/device/gradient_path.h"
#include "worker/device/parameter_path.h"
#include "worker/device_binding.h"

namespace parley {

CopyTimes LargeCopies(ComputeDevice& device, size_t bytes) {
  auto there = Require(device.Allocate("benchmark", bytes));
  auto here = Require(device.AllocatePinned("benchmark", bytes));
  CopyTimes best = {1e9, 1e9};
  for (int i = 0; i < 10; ++i) {
    absl::Time begin = SteadyNow();
    Require(device.CopyToHost(StreamId::kToHost, here.data(), there.data(), bytes));
    Finish(device, StreamId::kToHost);
    best.to_host = std::min(best.to_host, SecondsSince(begin));
    begin = SteadyNow();
    Require(device.CopyToDevice(StreamId::kToDevice, there.data(), here.data(), bytes));
    Finish(device, StreamId::kToDevice);
    best.to_device = std::min(best.to_device, SecondsSince(begin));
  }
  return best;
}

CopyTimes WorkersCopies(ComputeDevice& device, size_t bytes) {
  const size_t gradients = DeviceBinding::Options().bucket_elements * sizeof(float);
  const size_t values = DeviceBinding::Options().staged_values * sizeof(float);
  auto there = Require(device.Allocate("benchmark", std::max(gradients, values)));
  const auto piece = [&](size_t bucket) {
    return Piece{reinterpret_cast<float*>(there.data()), 0, bucket / sizeof(float)};
  };
  const auto buckets = [&](size_t bucket) { return std::max<size_t>(bytes / bucket, 1); };
  const auto out = Require(GradientPath::Make(device, {gradients, 2, buckets(gradients)}));
  const auto in = Require(ParameterPath::Make(device, {values, 2, 4}));
  std::vector<double> to_host;
  std::vector<double> to_device;
  for (int i = 0; i < 10; ++i) {
    absl::Time begin = SteadyNow();
    for (size_t bucket = 0; bucket < buckets(gradients); ++bucket) {
      Require(out->Send(bucket, {piece(gradients)}, 1, BucketType::kFloat32, gradients, Soon()));
    }
    while (true) {
      const auto more = out->Deliver(
          Soon(), [](size_t, absl::Span<const std::byte>) { return absl::OkStatus(); });
      Require(more.status());
      if (!*more) break;
    }
    to_host.push_back(SecondsSince(begin));
    begin = SteadyNow();
    for (size_t bucket = 0; bucket < buckets(values); ++bucket) {
      Require(in->Bring({piece(values)}, BucketType::kFloat32, values, Soon(),
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

}  // namespace parley
