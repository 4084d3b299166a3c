// A worker for tests, without LibTorch: its gradients are integers, so that sums are exact in
// float32 whatever their order, and the end of a job can be told beforehand.
//
// The gradient of a step is the sum over its samples of factor(sample) * pattern(element). With
// `reduction: SUM` and SGD at rate 1 from zero, a job of E epochs ends with
// -E * (sum of all factors) * pattern(element), however often workers were lost or replaced:
// every sample counts once in each epoch. Each worker that sees the end checks that.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/grpc_connector.h"
#include "client/local_connector.h"
#include "client/session.h"
#include "common/daemon/daemon.h"
#include "common/job/consistency.h"
#include "common/nonzero_blocks.h"

namespace parley {
namespace {

struct Workload {
  uint64_t samples = 240;
  std::vector<int64_t> elements = {300000, 1000, 7};  // of each tensor
  absl::Duration pause;                               // in each step, so that a test can keep up
};

// 1 to 5: a sample that is missing or counts twice always shows.
int64_t Factor(uint64_t sample) { return 1 + static_cast<int64_t>(sample * 2654435761U % 5); }

// As support/integer_job.py has it. Half of a large tensor is zeros, so that they are left out.
int64_t Pattern(size_t tensor, size_t element) {
  if (element / (4 * kZeroBlock) % 2 == 1) return 0;
  return static_cast<int64_t>((tensor + element) % 7) - 3;
}

// The elements of a tensor that the session lends.
template <class Bytes>
auto Floats(Bytes bytes) {
  struct View {
    std::byte* data;
    size_t size;
    float Get(size_t i) const {
      float value = 0;
      std::memcpy(&value, data + i * sizeof(float), sizeof(float));
      return value;
    }
    void Set(size_t i, float value) {
      std::memcpy(data + i * sizeof(float), &value, sizeof(float));
    }
  };
  return View{const_cast<std::byte*>(bytes.data()), bytes.size() / sizeof(float)};
}

absl::Status CheckSums(const Session& session, const Workload& workload, uint64_t epochs) {
  int64_t factors = 0;
  for (uint64_t sample = 0; sample < workload.samples; ++sample) factors += Factor(sample);
  for (size_t tensor = 0; tensor < workload.elements.size(); ++tensor) {
    const auto values = Floats(session.parameter(tensor));
    for (size_t i = 0; i < values.size; ++i) {
      const int64_t expected = -static_cast<int64_t>(epochs) * factors * Pattern(tensor, i);
      if (values.Get(i) == static_cast<float>(expected)) continue;
      return absl::DataLossError(absl::StrCat("element ", i, " of tensor ", tensor, " is ",
                                              values.Get(i), ", ", expected, " is right"));
    }
  }
  return absl::OkStatus();
}

absl::Status Start(Session& session, const Workload& workload) {
  std::vector<TensorSpec> tensors;
  for (const int64_t elements : workload.elements) {
    TensorSpec& tensor = tensors.emplace_back();
    tensor.set_name(absl::StrCat("sum", tensors.size() - 1));
    tensor.set_dtype(F32);
    tensor.add_shape(elements);
  }
  if (auto status = session.Register(tensors, workload.samples, /*test_samples=*/0); !status.ok()) {
    return status;
  }
  if (session.must_initialize()) {
    const int64_t most = *std::max_element(workload.elements.begin(), workload.elements.end());
    const std::vector<std::byte> zeros(most * sizeof(float));
    std::vector<absl::Span<const std::byte>> values;
    for (const int64_t elements : workload.elements) {
      values.emplace_back(zeros.data(), elements * sizeof(float));
    }
    if (auto status = session.Initialize(values); !status.ok()) return status;
  }
  return session.Pull();
}

absl::Status Step(Session& session, const Workload& workload, const StepPlan& plan) {
  int64_t factors = 0;
  for (const uint64_t sample : plan.samples) factors += Factor(sample);
  for (size_t tensor = workload.elements.size(); tensor-- > 0;) {
    auto gradient = Floats(session.gradient(tensor));
    for (size_t i = 0; i < gradient.size; ++i) {
      // Slices go as soon as they are complete.
      if (i > 0 && i % (gradient.size / 8 + 1) == 0) {
        auto status = session.PushUntil(tensor, i * sizeof(float));
        if (!status.ok()) return status;
      }
      gradient.Set(i, static_cast<float>(factors * Pattern(tensor, i)));
    }
    // In every other step it says which are zeros, else that is found out.
    const absl::Span<const std::byte> bytes = session.gradient(tensor);
    const std::string nonzero =
        plan.step % 2 == 0 ? FindNonzero(bytes, sizeof(float)) : std::string();
    const absl::Status pushed =
        nonzero.empty() ? session.Push(tensor) : session.PushNonzero(tensor, nonzero);
    if (!pushed.ok()) return pushed;
  }
  absl::SleepFor(workload.pause);
  if (auto verdict = session.Complete(static_cast<double>(factors)); !verdict.ok()) {
    return verdict.status();
  }
  return session.Pull();
}

absl::Status Train(Session& session, const Workload& workload, uint64_t epochs, bool checks) {
  if (auto status = Start(session, workload); !status.ok()) return status;
  while (true) {
    while (const std::optional<StepPlan> plan = session.NextStep()) {
      if (auto status = Step(session, workload, *plan); !status.ok()) return status;
    }
    // In bounded and async a worker need not have seen the last updates of the others.
    const absl::Status sums = checks ? CheckSums(session, workload, epochs) : absl::OkStatus();
    const absl::StatusOr<bool> finished = session.Finish({});
    if (session.drained()) return absl::OkStatus();
    if (!sums.ok()) return sums;
    if (!finished.ok() || *finished) return finished.status();
    // The job went back to a checkpoint.
    if (auto status = session.Pull(); !status.ok()) return status;
  }
}

int Main(int argc, char** argv) {
  CLI::App app("A worker for tests that adds integers.", "integer-worker");
  DaemonFlags flags;
  AddDaemonFlags(app, flags, /*with_coordinator=*/true);
  Workload workload;
  std::string pause = "0s";
  app.add_option("--samples", workload.samples, "Size of the training set");
  app.add_option("--elements", workload.elements, "Of each tensor")->delimiter(',');
  app.add_option("--pause", pause, "In each step");
  Session::Options options;
  app.add_option("--push_window", options.push_window_bytes, "Bytes, for each shard");
  std::string transport = "local";
  app.add_option("--transport", transport, "What calls with tensors go by")
      ->check(CLI::IsMember({"local", "direct", "grpc"}));
  if (const auto code = ParseCommandLine(app, argc, argv)) return *code;

  Daemon daemon(WORKER, flags);
  if (auto status = daemon.LoadJob(); !status.ok()) return daemon.Exit(kWrongUsage, status);
  if (auto status = daemon.Serve({}); !status.ok()) return daemon.Exit(kWrongUsage, status);
  std::unique_ptr<Connector> connector =
      MakeGrpcConnector(/*direct=*/transport != "grpc", daemon.credentials());
  if (transport == "local") connector = MakeLocalConnector(std::move(connector));
  options.job = daemon.job();
  options.coordinator = daemon.flags().coordinator;
  options.address = daemon.address();
  options.metrics_address = daemon.metrics().address();
  options.join_timeout = flags.join_timeout;
  options.coordinator_news = daemon.coordinator_news();
  if (!absl::ParseDuration(pause, &workload.pause)) {
    return daemon.Exit(kWrongUsage, "--pause is a duration such as 20ms");
  }
  auto session = Session::Join(std::move(options), *connector);
  if (!session.ok()) return daemon.Exit(kFailed, session.status());
  daemon.Joined((*session)->member_ordinal());
  daemon.log().Info("joined", {{"ordinal", absl::StrCat((*session)->member_ordinal())}});
  daemon.TellWaits([&](WaitsReply& reply) { (*session)->TellWaits(reply); });
  const absl::Cleanup tell_no_more = [&] { daemon.TellWaits(nullptr); };

  const absl::Status status =
      Train(**session, workload, daemon.job().epochs(), !IsClocked(daemon.job()));
  if ((*session)->drained()) {
    daemon.log().Info("was sent away");
    return daemon.Exit(kFinished, "");
  }
  if (status.ok()) {
    daemon.log().Info("the sums are exact");
    return daemon.Exit(kFinished, "");
  }
  // Of a job that has not failed yet this is the reason.
  return daemon.Exit(kFailed, (*session)->Fail(std::string(status.message()), false).text());
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
