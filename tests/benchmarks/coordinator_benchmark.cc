// What a real coordinator costs with many members: 1,000 workers and 164 shards that join within
// ten seconds, beat, watch, and report a step each second; then one in a hundred of the workers
// fails each minute, and another one takes its place.
//
//   bazel run -c opt //tests/benchmarks:coordinator_benchmark [-- --seconds=60]
//
// The members are this process: they make the calls that client/member_state.h makes, each over a
// connection of its own. A stage makes the same ones as a shard. Processor time is that of the
// coordinator's process, of which the bar allows half a core.
//
// Exits with 1 where it takes more, or where a heartbeat fails.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <queue>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/coordinator_address.h"
#include "client/grpc_connector.h"
#include "common/clock/steady_now.h"
#include "common/file_system.h"

namespace parley {
namespace {

constexpr absl::Duration kLiveness = absl::Seconds(10);
constexpr absl::Duration kStep = absl::Seconds(1);
constexpr absl::Duration kStatus = absl::Milliseconds(500);  // as `parley top` asks
constexpr absl::Duration kAway = absl::Seconds(15);  // until another one takes a lost one's place
constexpr uint64_t kBatch = 10;
constexpr double kBar = 0.5;  // cores

struct Options {
  std::string program;
  uint32_t workers = 1000;
  uint32_t shards = 164;
  double join_seconds = 10;
  double seconds = 60;  // of each part
  double lost = 0.01;   // of the workers, in a minute
};

// parley-coordinator with a job of this size; this object owns the process and its directory.
class RealCoordinator {
 public:
  explicit RealCoordinator(const Options& options)
      : folder_(std::filesystem::temp_directory_path() /
                absl::StrCat("parley-coordinator-benchmark-", getpid())) {
    std::filesystem::create_directories(folder_);
    const std::string job = folder_ / "job.textproto";
    std::ofstream(job) << "name: \"many\" model { own {} } data { own {} batch: " << kBatch
                       << " } optimizer { sgd { rate: 0.1 } } epochs: 1 liveness: \""
                       << absl::FormatDuration(kLiveness) << "\" checkpoint { at_end: false }"
                       << " cluster { workers: " << options.workers
                       << " min_workers: " << options.workers / 2 << " shards: " << options.shards
                       << " }";
    std::vector<std::string> words = {options.program, "--job=" + job, "--listen=127.0.0.1:0",
                                      "--out=" + Out()};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string log = folder_ / "log";
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_CREAT | O_WRONLY,
                                     0600);
    if (posix_spawn(&pid_, options.program.c_str(), &actions, nullptr, argv.data(), environ) != 0) {
      pid_ = 0;
    }
    posix_spawn_file_actions_destroy(&actions);
  }

  ~RealCoordinator() {
    if (pid_ != 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Empty: it does not begin.
  std::string Address() const {
    const auto files = PosixFileSystem();
    for (int i = 0; i < 300; ++i) {
      const auto address = ResolveCoordinator(*files, "file:" + Out() + "/coordinator.address");
      if (address.ok()) return *address;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return "";
  }

  std::string Log() const {
    std::ifstream log(folder_ / "log");
    return {std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  }

  absl::Duration ProcessorTime() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    // Behind the name in brackets: utime and stime are the 14th and 15th field of all.
    const std::vector<std::string> fields =
        absl::StrSplit(text.substr(std::min(text.size(), text.rfind(')') + 2)), ' ');
    if (fields.size() < 13) return absl::ZeroDuration();
    const double ticks = std::stod(fields[11]) + std::stod(fields[12]);
    return absl::Seconds(ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
  }

  double ResidentMiB() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/statm"));
    double whole = 0;
    double resident = 0;
    file >> whole >> resident;
    return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
  }

 private:
  std::string Out() const { return folder_ / "out"; }

  std::filesystem::path folder_;
  pid_t pid_ = 0;
};

struct Counts {
  uint64_t calls = 0;
  uint64_t bytes_in = 0;  // of answers
  uint64_t failed = 0;
  std::vector<double> beats;  // ms that each heartbeat took
};

uint64_t BytesOf(const google::protobuf::MessageLite& reply) { return reply.ByteSizeLong(); }
uint64_t BytesOf(const SharedJobState& reply) { return BytesOf(*reply); }

// All members of the job. Run() is for one thread; answers come on gRPC's.
class Members {
 public:
  Members(const Options& options, std::string address)
      : options_(options), address_(std::move(address)) {
    absl::MutexLock lock(&mu_);
    for (uint32_t i = 0; i < options.workers + options.shards; ++i) {
      const double share = static_cast<double>(i) / (options.workers + options.shards);
      Start(i < options.shards ? SHARD : WORKER, SteadyNow() + share * JoinTime());
    }
    operator_ = connector_->ConnectCoordinator(address_);
    At(SteadyNow() + kStatus, [this] { AskStatus(); });
  }
  ~Members() { connector_.reset(); }

  // Does what is due until then.
  void RunUntil(absl::Time end) {
    while (SteadyNow() < end) {
      std::function<void()> next;
      {
        absl::MutexLock lock(&mu_);
        if (!due_.empty() && due_.top().when <= SteadyNow()) {
          next = due_.top().what;
          due_.pop();
        }
      }
      if (next) {
        next();
      } else {
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
  }

  // Whether all have joined and the job trains.
  bool trains() const {
    absl::MutexLock lock(&mu_);
    return phase_ == TRAINING;
  }
  void LoseSome() {
    absl::MutexLock lock(&mu_);
    const double a_minute = options_.lost * options_.workers;
    if (a_minute > 0) LoseOneEach(absl::Minutes(1) / a_minute);
  }
  Counts TakeCounts() {
    absl::MutexLock lock(&mu_);
    return std::exchange(counts_, Counts());
  }
  uint64_t steps() const {
    absl::MutexLock lock(&mu_);
    return step_;
  }
  uint64_t views() const {
    absl::MutexLock lock(&mu_);
    return view_.view_epoch();
  }
  std::string first_error() const {
    absl::MutexLock lock(&mu_);
    return first_error_;
  }

 private:
  struct One {
    Role role;
    std::shared_ptr<CoordinatorClient> client;
    CallHeader header;
    uint32_t ordinal = 0;
    uint64_t revision = 0;
    bool reported = false;  // ready, or its model
    bool gone = false;
  };
  using Member = std::shared_ptr<One>;

  struct Due {
    absl::Time when;
    std::function<void()> what;
    bool operator<(const Due& other) const { return when > other.when; }
  };

  absl::Duration JoinTime() const { return absl::Seconds(options_.join_seconds); }
  static absl::Time Soon() { return SteadyNow() + kLiveness / 2; }

  void At(absl::Time when, std::function<void()> what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    due_.push({when, std::move(what)});
  }

  // Counts an answer. false: it is an error, or its member has been lost.
  template <class Reply>
  bool Came(const Member& member, const char* call, const absl::StatusOr<Reply>& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (member != nullptr && member->gone) return false;
    ++counts_.calls;
    if (reply.ok()) {
      counts_.bytes_in += BytesOf(*reply);
      return true;
    }
    ++counts_.failed;
    if (first_error_.empty()) first_error_ = absl::StrCat(call, ": ", reply.status().ToString());
    return false;
  }

  void Start(Role role, absl::Time when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto member = std::make_shared<One>();
    member->role = role;
    member->header.set_job("many");
    member->header.set_incarnation(++incarnations_);
    At(when, [this, member] { Join(member); });
  }

  void Join(const Member& member) {
    JoinRequest request;
    {
      absl::MutexLock lock(&mu_);
      member->client = connector_->ConnectCoordinator(address_);
      *request.mutable_header() = member->header;
      request.set_role(member->role);
      const uint64_t number = member->header.incarnation();
      request.set_address(absl::StrCat("10.0.", number / 250, ".", number % 250, ":40000"));
      request.set_metrics_address(absl::StrCat("10.0.", number / 250, ".", number % 250, ":40001"));
      request.set_pid(static_cast<int64_t>(number));
    }
    member->client->Join(request, Soon(), [this, member](absl::StatusOr<JoinReply> reply) {
      absl::MutexLock lock(&mu_);
      if (!Came(member, "Join", reply)) return;
      member->header.set_member(reply->member());
      member->ordinal = reply->ordinal();
      At(SteadyNow(), [this, member] { Watch(member); });
      At(SteadyNow() + kLiveness / 4, [this, member] { Beat(member); });
      if (member->role != WORKER) return;
      workers_.push_back(member);
      At(SteadyNow(), [this, member] { Register(member); });
    });
  }

  // As large as ResNet-50: 161 tensors.
  void Register(const Member& member) {
    RegisterModelRequest request;
    {
      absl::MutexLock lock(&mu_);
      *request.mutable_header() = member->header;
    }
    for (int i = 0; i < 161; ++i) {
      TensorSpec* tensor = request.add_tensors();
      tensor->set_name(absl::StrCat("layer", i / 10, ".", i % 10, ".conv.weight"));
      tensor->set_dtype(F32);
      for (const int64_t size : {512, 320}) tensor->add_shape(size);
    }
    request.set_training_samples(uint64_t{1} << 50);
    member->client->RegisterModel(request, Soon(),
                                  [this, member](absl::StatusOr<RegisterModelReply> reply) {
                                    absl::MutexLock lock(&mu_);
                                    Came(member, "RegisterModel", reply);
                                  });
  }

  void Beat(const Member& member) {
    HeartbeatRequest request;
    {
      absl::MutexLock lock(&mu_);
      if (member->gone) return;
      *request.mutable_header() = member->header;
      request.set_step(step_);
      request.set_progress(step_);
    }
    const absl::Time sent = SteadyNow();
    member->client->Heartbeat(
        request, sent + kLiveness / 4, [this, member, sent](absl::StatusOr<HeartbeatReply> reply) {
          absl::MutexLock lock(&mu_);
          if (Came(member, "Heartbeat", reply)) {
            counts_.beats.push_back(absl::ToDoubleMilliseconds(SteadyNow() - sent));
          }
          At(sent + kLiveness / 4, [this, member] { Beat(member); });
        });
  }

  void Watch(const Member& member) {
    WatchRequest request;
    {
      absl::MutexLock lock(&mu_);
      if (member->gone) return;
      *request.mutable_header() = member->header;
      request.set_seen_revision(member->revision);
    }
    member->client->Watch(request, SteadyNow() + kLiveness + kLiveness / 4,
                          [this, member](const absl::StatusOr<SharedJobState>& reply) {
                            absl::MutexLock lock(&mu_);
                            const bool came = Came(member, "Watch", reply);
                            if (came && (*reply)->phase() != PHASE_UNSPECIFIED)
                              See(member, **reply);
                            At(SteadyNow() + absl::Milliseconds(came ? 0 : 300),
                               [this, member] { Watch(member); });
                          });
  }

  void See(const Member& member, const WatchReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    member->revision = reply.revision();
    member->header.set_job_epoch(reply.view().job_epoch());
    member->header.set_view_epoch(reply.view().view_epoch());
    if (reply.view().view_epoch() >= view_.view_epoch()) view_ = reply.view();
    if (member->role == SHARD && reply.phase() >= PREPARING &&
        !std::exchange(member->reported, true)) {
      At(SteadyNow(), [this, member] { ReportReady(member); });
    }
    if (reply.phase() == TRAINING && phase_ != TRAINING) {
      phase_ = TRAINING;
      At(SteadyNow(), [this] { Decide(); });
    }
    if (member->role == SHARD && member->ordinal == view_.step_leader()) leader_ = member;
  }

  void ReportReady(const Member& member) {
    ReportReadyRequest request;
    {
      absl::MutexLock lock(&mu_);
      *request.mutable_header() = member->header;
    }
    member->client->ReportReady(request, Soon(),
                                [this, member](absl::StatusOr<ReportReadyReply> reply) {
                                  absl::MutexLock lock(&mu_);
                                  Came(member, "ReportReady", reply);
                                });
  }

  // The leader's verdict of the next step: all contributors of the view have done their share.
  void Decide() {
    ReportVerdictsRequest request;
    Member leader;
    {
      absl::MutexLock lock(&mu_);
      At(SteadyNow() + kStep, [this] { Decide(); });
      leader = leader_;
      if (leader == nullptr) return;
      *request.mutable_header() = leader->header;
      Verdict& verdict = *request.add_verdicts();
      verdict.set_step(++step_);
      verdict.set_outcome(Verdict::APPLY);
      verdict.set_view_epoch(view_.view_epoch());
      for (const Contributor& contributor : view_.contributors()) {
        Share& share = *verdict.add_shares();
        share.set_contributor(contributor.ordinal());
        share.set_samples(kBatch);
        share.set_weight(1);
        share.set_loss_sum(kBatch * 0.5);
        SampleRange& range = *share.add_ranges();
        range.set_begin(samples_);
        range.set_end(samples_ += kBatch);
      }
    }
    leader->client->ReportVerdicts(request, Soon(),
                                   [this, leader](absl::StatusOr<ReportVerdictsReply> reply) {
                                     absl::MutexLock lock(&mu_);
                                     Came(leader, "ReportVerdicts", reply);
                                   });
  }

  void AskStatus() {
    GetStatusRequest request;
    request.set_job("many");
    operator_->GetStatus(request, Soon(), [this](absl::StatusOr<GetStatusReply> reply) {
      absl::MutexLock lock(&mu_);
      Came(nullptr, "GetStatus", reply);
      At(SteadyNow() + kStatus, [this] { AskStatus(); });
    });
  }

  void LoseOneEach(absl::Duration period) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    At(SteadyNow() + period, [this, period] {
      absl::MutexLock lock(&mu_);
      if (!workers_.empty()) {
        // Those that have been there for the longest.
        workers_.front()->gone = true;
        workers_.erase(workers_.begin());
        Start(WORKER, SteadyNow() + kAway);
      }
      LoseOneEach(period);
    });
  }

  const Options& options_;
  const std::string address_;
  std::unique_ptr<Connector> connector_ = MakeGrpcConnector(/*direct=*/false);
  std::shared_ptr<CoordinatorClient> operator_;

  mutable absl::Mutex mu_;
  std::priority_queue<Due> due_ ABSL_GUARDED_BY(mu_);
  std::vector<Member> workers_ ABSL_GUARDED_BY(mu_);  // that have joined and are not lost
  Member leader_ ABSL_GUARDED_BY(mu_);
  ClusterView view_ ABSL_GUARDED_BY(mu_);  // the newest
  Phase phase_ ABSL_GUARDED_BY(mu_) = PHASE_UNSPECIFIED;
  uint64_t incarnations_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t samples_ ABSL_GUARDED_BY(mu_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mu_);
  std::string first_error_ ABSL_GUARDED_BY(mu_);
};

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("What a coordinator costs with many members", "coordinator_benchmark");
  app.add_option("PROGRAM", options.program, "parley-coordinator")->required();
  app.add_option("--workers", options.workers)->capture_default_str();
  app.add_option("--shards", options.shards)->capture_default_str();
  app.add_option("--join_seconds", options.join_seconds)->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each part")->capture_default_str();
  app.add_option("--lost", options.lost, "of the workers, in a minute")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  // A connection for each member, here and there.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  RealCoordinator coordinator(options);
  const std::string address = coordinator.Address();
  if (address.empty()) {
    std::fprintf(stderr, "the coordinator does not begin:\n%s", coordinator.Log().c_str());
    return 1;
  }
  Members members(options, address);
  std::printf("%u workers, %u shards, a step a second; the bar is %.1f of a core\n\n",
              options.workers, options.shards, kBar);
  std::printf("%-34s %8s %9s %9s %8s %8s %9s %8s\n", "", "cores", "calls/s", "out MiB/s",
              "beat p50", "beat p99", "memory", "failed");
  bool met = true;
  const auto part = [&](const std::string& what, const std::function<void()>& run, bool counts) {
    members.TakeCounts();
    const absl::Time begin = SteadyNow();
    const absl::Duration before = coordinator.ProcessorTime();
    run();
    const double seconds = absl::ToDoubleSeconds(SteadyNow() - begin);
    const double cores = absl::ToDoubleSeconds(coordinator.ProcessorTime() - before) / seconds;
    const Counts seen = members.TakeCounts();
    std::printf("%-34s %8.3f %9.0f %9.2f %5.1f ms %5.1f ms %5.0f MiB %8llu\n", what.c_str(), cores,
                static_cast<double>(seen.calls) / seconds,
                static_cast<double>(seen.bytes_in) / (1 << 20) / seconds,
                Percentile(seen.beats, 0.5), Percentile(seen.beats, 0.99),
                coordinator.ResidentMiB(), static_cast<unsigned long long>(seen.failed));
    std::fflush(stdout);
    met = met && seen.failed == 0 && (!counts || cores <= kBar);
  };
  const auto run_for = [&](double seconds) {
    members.RunUntil(SteadyNow() + absl::Seconds(seconds));
  };

  part(
      absl::StrCat("all join within ", options.join_seconds, " s"),
      [&] {
        run_for(options.join_seconds);
        for (int i = 0; i < 120 && !members.trains(); ++i) run_for(0.5);
      },
      /*counts=*/false);
  if (!members.trains()) {
    std::fprintf(stderr, "the job does not train. %s\n%s", members.first_error().c_str(),
                 coordinator.Log().c_str());
    return 1;
  }
  part(
      "steps", [&] { run_for(options.seconds); }, /*counts=*/true);
  members.LoseSome();
  const uint64_t steps = members.steps();
  const uint64_t views = members.views();
  part(
      absl::StrCat(100 * options.lost, " % of the workers lost a minute"),
      [&] { run_for(options.seconds); }, /*counts=*/true);
  std::printf("\n%llu steps and %llu views in the last part. %s\n",
              static_cast<unsigned long long>(members.steps() - steps),
              static_cast<unsigned long long>(members.views() - views), met ? "met" : "not met");
  if (!members.first_error().empty()) {
    std::printf("first error: %s\n", members.first_error().c_str());
  }
  return met ? 0 : 1;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) { return parley::Main(argc, argv); }
