// One of four workers is five times slower than the others: how many contributions a second does a
// job make in each consistency mode? Workers compute by sleeping, so that the machine's load hardly
// counts.
//
//   bazel run -c opt //tests/benchmarks:straggler_benchmark
//
// Exits with 1 where a mode is not near its limit: async at least 0.9 of the sum of the workers'
// own paces; sync with a backup worker at least 0.9 of the three fast ones'; sync at most 1.1 of
// the slow one's pace, for all.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock/steady_now.h"
#include "tests/contract/cluster.h"

namespace parley {
namespace {

constexpr int kWorkers = 4;
constexpr int kSlower = 5;
constexpr absl::Duration kCompute = absl::Milliseconds(20);
constexpr uint64_t kBatch = 4;
constexpr uint64_t kContributions = 1000;

absl::Duration ComputeTimeOf(uint32_t ordinal) {
  return ordinal == 0 ? kSlower * kCompute : kCompute;
}

double PaceOf(uint32_t ordinal) { return 1 / absl::ToDoubleSeconds(ComputeTimeOf(ordinal)); }

// One small tensor: what is measured is who waits for whom.
std::vector<TensorSpec> Model() {
  std::vector<TensorSpec> model(1);
  model[0].set_name("w");
  model[0].set_dtype(F32);
  model[0].add_shape(1000);
  return model;
}

absl::Status Train(Session& session, uint64_t samples, absl::Time& begun, absl::Time& ended) {
  if (auto status = session.Register(Model(), samples, 0); !status.ok()) return status;
  if (session.must_initialize()) {
    const std::vector<absl::Span<const std::byte>> zeros = {session.gradient(0)};
    if (auto status = session.Initialize(zeros); !status.ok()) return status;
  }
  if (auto status = session.Pull(); !status.ok()) return status;
  begun = SteadyNow();
  while (const auto plan = session.NextStep()) {
    if (!plan->samples.empty()) absl::SleepFor(ComputeTimeOf(session.ordinal()));
    if (auto status = session.Push(0); !status.ok()) return status;
    if (auto verdict = session.Complete(0); !verdict.ok()) return verdict.status();
    if (auto status = session.Pull(); !status.ok()) return status;
  }
  ended = SteadyNow();
  return session.Finish({}).status();
}

// Contributions a second.
double Throughput(const std::string& mode, uint64_t contributions) {
  const uint64_t samples = contributions * kBatch;  // the contract's jobs have batches of 4
  LocalCluster cluster(MakeInProcessTransport(),
                       ContractJob(kWorkers, 2, absl::StrCat("epochs: 1 ", mode)));
  std::vector<std::pair<absl::Time, absl::Time>> times(kWorkers);
  cluster.RunWorkers(kWorkers, [&](Session& session) {
    auto& [begun, ended] = times[session.ordinal()];
    const absl::Status status = Train(session, samples, begun, ended);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  });
  absl::Time first = absl::InfiniteFuture();
  absl::Time last = absl::InfinitePast();
  for (const auto& [begun, ended] : times) {
    first = std::min(first, begun);
    last = std::max(last, ended);
  }
  return static_cast<double>(contributions) / absl::ToDoubleSeconds(last - first);
}

int Run() {
  double sum = 0;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) sum += PaceOf(worker);
  const double slow = kWorkers * PaceOf(0);
  std::printf("%d workers, one %d times slower; compute %s and %s\n\n", kWorkers, kSlower,
              absl::FormatDuration(ComputeTimeOf(1)).c_str(),
              absl::FormatDuration(ComputeTimeOf(0)).c_str());
  std::printf("%-20s %16s %18s %18s\n", "mode", "contributions/s", "of the sum of",
              "of the slow one's");
  std::printf("%-20s %16s %18s %18s\n", "", "", "all paces", "pace for all");
  const auto row = [&](const char* name, const std::string& mode, uint64_t contributions) {
    const double throughput = Throughput(mode, contributions);
    std::printf("%-20s %16.1f %18.2f %18.2f\n", name, throughput, throughput / sum,
                throughput / slow);
    std::fflush(stdout);
    return throughput;
  };
  const double sync = row("sync", "", kContributions / 5);
  const double backup = row("sync, 1 backup", "consistency { sync { backup: 1 } }", kContributions);
  row("bounded, bound 4", "consistency { bounded { bound: 4 } }", kContributions / 5);
  const double async = row("async", "consistency { async {} }", kContributions);
  const double fast = sum - PaceOf(0);
  const bool right = async >= 0.9 * sum && sync <= 1.1 * slow && backup >= 0.9 * fast;
  std::printf(
      "\nasync %.2f of all paces (at least 0.9), backup %.2f of the fast ones' (at least 0.9), "
      "sync %.2f of the slow one's for all (at most 1.1): %s\n",
      async / sum, backup / fast, sync / slow, right ? "yes" : "NO");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace parley

int main() { return parley::Run(); }
