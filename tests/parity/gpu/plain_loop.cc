#include "tests/parity/gpu/plain_loop.h"

#include <c10/core/GradMode.h>

#include <cstddef>

#include "absl/types/span.h"
#include "common/clock/steady_now.h"
#include "tests/benchmarks/require.h"
#include "tests/benchmarks/timing.h"
#include "tests/parity/gpu/finish.h"
#include "worker/autocast.h"
#include "worker/batch_tensors.h"
#include "worker/loss.h"

namespace parley {

PlainLoop::PlainLoop(const JobConfig& job, const Datasets& data, ComputeDevice& device)
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

double PlainLoop::Run(uint64_t steps) {
  std::vector<double> seconds;
  for (uint64_t step = 0; step < steps; ++step) {
    const absl::Time begin = SteadyNow();
    Step();
    Finish(device_, StreamId::kCompute);
    seconds.push_back(SecondsSince(begin));
  }
  return Median(seconds);
}

void PlainLoop::MakeBatch() {
  const SampleLayout& x_layout = data_.train->x();
  const SampleLayout& y_layout = data_.train->y();
  Draw draw;
  for (uint64_t i = 0; i < job_.data().batch(); ++i) {
    draw.samples.push_back(random_() % data_.train->size());
  }
  std::vector<std::byte> x_bytes(draw.samples.size() * x_layout.bytes());
  std::vector<std::byte> y_bytes(draw.samples.size() * y_layout.bytes());
  Require(data_.train->Fill(draw, absl::MakeSpan(x_bytes), absl::MakeSpan(y_bytes)));
  at::Tensor x = BatchTensor(x_layout, draw.samples.size(), absl::MakeSpan(x_bytes));
  at::Tensor y = BatchTensor(y_layout, draw.samples.size(), absl::MakeSpan(y_bytes));
  // A fake device has no pinned memory.
  const bool pin = where_.is_cuda();
  batches_.emplace_back(pin ? x.pin_memory() : x.clone(), pin ? y.pin_memory() : y.clone());
}

void PlainLoop::Step() {
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

}  // namespace parley
