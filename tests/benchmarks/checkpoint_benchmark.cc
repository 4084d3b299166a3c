// What a checkpoint costs a shard: how long the step after the marked version takes longer because
// what it changes is copied first, against a memcpy of the same bytes into warm memory; and how
// fast the file is written and loaded, against dd with the same size; it is loaded four times as
// often, behind all writing.
//
//   bazel run -c opt //tests/benchmarks:checkpoint_benchmark -- [--mib=1024] [--turns=5]
//   [--dir=DIR]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/loop_threads.h"
#include "server/parameter_shard/checkpoint_io.h"
#include "server/parameter_shard/shard_fixture.h"
#include "tests/benchmarks/timing.h"

namespace parley::testing {
namespace {

// Reading takes less time than writing.
constexpr int kLoadsOfATurn = 4;

// Exits where the command fails.
void Shell(const std::string& command) {
  if (std::system(command.c_str()) == 0) return;
  std::fprintf(stderr, "failed: %s\n", command.c_str());
  std::exit(1);
}

void Forget(const std::string& path) {
  Shell(absl::StrCat("dd of=", path, " oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null"));
}

class Benchmark {
 public:
  Benchmark(uint64_t mib, int turns, std::string directory)
      : bytes_(mib << 20),
        turns_(turns),
        directory_(std::move(directory)),
        cluster_(Job(), View(), /*start=*/true, Resources()) {}

  void Run() {
    std::printf("a shard with %.0f MiB of parameters and as much momentum, %u threads, %d turns\n",
                static_cast<double>(bytes_) / (1 << 20), std::thread::hardware_concurrency(),
                turns_);
    Pause();
    Files();
  }

 private:
  static JobConfig Job() {
    JobConfig job = SummingJob();
    job.mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
    job.mutable_checkpoint()->set_every_steps(2);
    return job;
  }

  ClusterView View() const {
    ViewOptions options;
    // Of slices of 4 MiB, as tensors of a large network are cut.
    options.tensors = {{"w", bytes_ / sizeof(float)}};
    options.slice_elements = 1 << 20;
    return MakeView(options);
  }

  // On all cores, as a shard's process has it.
  ShardResources Resources() {
    ShardResources resources;
    resources.parallel = [this](size_t count, const std::function<void(size_t)>& body) {
      threads_.Run(count, body);
    };
    return resources;
  }

  // The time in which the shard carries out one decided step.
  double Step() {
    const uint64_t step = cluster_.leader().version() + 1;
    cluster_.PushAll(0, step, 0, 1);
    const CompleteRequest complete = cluster_.MakeComplete(0, step, 0);
    return SecondsOf([&] { (void)cluster_.Complete(complete); });
  }

  void Pause() {
    std::vector<char> from(2 * bytes_, 1);
    std::vector<char> to(2 * bytes_, 2);
    std::vector<double> copies;
    std::vector<double> plain;
    std::vector<double> copying;
    Step();  // the next one, and every second after it, is marked
    if (const auto reservation = cluster_.leader().TakeReservation()) reservation();
    for (int turn = 0; turn < turns_; ++turn) {
      copies.push_back(SecondsOf([&] { std::memcpy(to.data(), from.data(), from.size()); }));
      plain.push_back(Step());    // makes the version that is marked
      copying.push_back(Step());  // copies what that one keeps
      Replies replies;
      const uint64_t marked = cluster_.leader().Progress().mark().version();
      cluster_.leader().FollowCheckpoints(0, marked, cluster_.now(), replies);
    }
    if (to[1] != 1) std::abort();  // the copies count
    const double pause = Median(copying) - Median(plain);
    std::printf("  memcpy of both, one thread        %7.3f s\n", Median(copies));
    std::printf("  a step                            %7.3f s\n", Median(plain));
    std::printf("  the step after a marked version   %7.3f s, the first one %.3f s\n",
                Median(copying), copying.front());
    std::printf("  pause                             %7.3f s, of the first one %.3f s\n", pause,
                copying.front() - plain.front());
    std::printf(
        "  ratio to memcpy                   %7.2f, of the first one %.2f, of the best turns "
        "%.2f\n",
        pause / Median(copies), (copying.front() - plain.front()) / Median(copies),
        (Best(copying) - Best(plain)) / Best(copies));
  }

  void Files() {
    const auto files = PosixFileSystem();
    const std::string folder = absl::StrCat(directory_, "/step-00000001");
    std::filesystem::create_directories(folder);
    const Routing& routing = *cluster_.leader().routing();
    const auto slices = cluster_.leader().Snapshot(cluster_.leader().version());
    if (!slices.ok()) std::abort();
    const uint64_t all = 2 * bytes_;
    std::vector<double> ours;
    std::vector<double> dd;
    std::vector<double> loads;
    std::vector<double> reads;
    CheckpointFile file;
    const auto dd_writes = [&] {
      dd.push_back(SecondsOf([&] {
        Shell(absl::StrCat("dd if=/dev/zero of=", directory_, "/dd bs=4M count=", all >> 22,
                           " conv=fsync 2>/dev/null"));
      }));
    };
    const auto we_write = [&] {
      ours.push_back(SecondsOf([&] {
        auto written = WriteCheckpointFile(*files, folder, routing, *slices);
        if (!written.ok()) {
          std::fprintf(stderr, "%s\n", written.status().ToString().c_str());
          std::exit(1);
        }
        file = *std::move(written);
      }));
    };
    const auto dd_reads = [&] {
      reads.push_back(SecondsOf([&] {
        Shell(absl::StrCat("dd if=", directory_, "/dd of=/dev/null bs=4M 2>/dev/null"));
      }));
    };
    const auto we_read = [&] {
      loads.push_back(SecondsOf([&] {
        const absl::Status loaded =
            LoadCheckpoint(*files, folder, *AtStep(1),
                           [](uint32_t, const SliceStart&) { return absl::OkStatus(); });
        if (!loaded.ok()) {
          std::fprintf(stderr, "%s\n", loaded.ToString().c_str());
          std::exit(1);
        }
      }));
    };
    // By turns first: a disk that is shared, or fast only for a while, favours one of them.
    for (int turn = 0; turn < turns_; ++turn) {
      if (turn % 2 != 0) we_write();
      dd_writes();
      if (turn % 2 == 0) we_write();
    }
    Commit(*files, folder, file);
    // Behind all that is written: what a disk still does with that would slow down who reads first.
    for (int turn = 0; turn < kLoadsOfATurn * turns_; ++turn) {
      // From the disk, not from the memory that the system keeps of files.
      Forget(directory_ + "/dd");
      Forget(absl::StrCat(folder, "/", file.name()));
      if (turn % 2 != 0) we_read();
      dd_reads();
      if (turn % 2 == 0) we_read();
    }
    Print("written and synced", static_cast<double>(all), ours, dd);
    Print("loaded and checked", static_cast<double>(all), loads, reads);
    std::filesystem::remove(directory_ + "/dd");
    std::filesystem::remove_all(folder);
  }

  // What others do with a shared disk only makes it slower: the best turn of each says what it can.
  static void Print(const char* what, double bytes, const std::vector<double>& ours,
                    const std::vector<double>& dd) {
    const double mib = bytes / (1 << 20);
    const double best = Best(ours);
    const double best_dd = Best(dd);
    std::printf("  %-20s best %5.0f, median %5.0f MiB/s; dd %5.0f, %5.0f MiB/s; ratio %.2f, %.2f\n",
                what, mib / best, mib / Median(ours), mib / best_dd, mib / Median(dd),
                best_dd / best, Median(dd) / Median(ours));
  }

  std::shared_ptr<const Routing> AtStep(uint64_t step) const {
    ClusterView view = cluster_.view();
    view.set_start_version(step);
    return *Routing::Make(view, 0);
  }

  void Commit(FileSystem& files, const std::string& folder, const CheckpointFile& file) const {
    Manifest manifest;
    manifest.set_job_name("benchmark");
    manifest.set_step(1);
    *manifest.mutable_tensors() = cluster_.view().tensors();
    *manifest.add_files() = file;
    const absl::Status committed = CommitCheckpoint(files, folder, std::move(manifest));
    if (committed.ok()) return;
    std::fprintf(stderr, "%s\n", committed.ToString().c_str());
    std::exit(1);
  }

  const uint64_t bytes_;
  const int turns_;
  const std::string directory_;
  LoopThreads threads_{std::max(1U, std::thread::hardware_concurrency()) - 1};
  ShardCluster cluster_;
};

int Main(int argc, char** argv) {
  CLI::App app("What a checkpoint costs a shard.", "checkpoint_benchmark");
  uint64_t mib = 1024;
  int turns = 5;
  std::string directory = "/tmp/parley-checkpoint-benchmark";
  app.add_option("--mib", mib, "Of parameters")->capture_default_str();
  app.add_option("--turns", turns, "Of each measurement; medians are told")->capture_default_str();
  app.add_option("--dir", directory, "On the disk to be measured")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Benchmark(mib, turns, directory).Run();
  return 0;
}

}  // namespace
}  // namespace parley::testing

int main(int argc, char** argv) { return parley::testing::Main(argc, argv); }
