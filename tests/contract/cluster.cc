#include "tests/contract/cluster.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/runtime.h"
#include "common/clock/steady_now.h"
#include "common/job/job_file.h"

namespace parley {
namespace {

// This machine, by another name.
class RuntimeOn final : public Runtime {
 public:
  explicit RuntimeOn(std::string host) : host_(std::move(host)) {}

  absl::Time Now() const override { return machine_->Now(); }
  std::shared_ptr<Timers> MakeTimers() override { return machine_->MakeTimers(); }
  bool Await(absl::Mutex& mu, const absl::Condition& condition, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return machine_->Await(mu, condition, deadline);
  }
  uint64_t DrawIncarnation() override { return machine_->DrawIncarnation(); }
  int64_t pid() const override { return machine_->pid(); }
  std::string host() const override { return host_; }
  ParallelFor Loops() override { return machine_->Loops(); }

 private:
  const std::string host_;
  const std::shared_ptr<Runtime> machine_ = RealRuntime();
};

}  // namespace

JobConfig ContractJob(int workers, int shards, const std::string& more) {
  const std::string path = absl::StrCat(testing::TempDir(), "/contract.textproto");
  std::ofstream(path) << R"(
      name: "contract"
      model { simple_cnn {} }
      data { idx { directory: "/nowhere" } batch: 4 }
      optimizer { sgd { rate: 1 } }
      checkpoint { at_end: false }
      liveness: "2s"
      stall_timeout: "20s"
      )" << absl::StrCat("cluster { workers: ", workers, " shards: ", shards, " }\n")
                      << more;
  absl::StatusOr<JobConfig> job = LoadJob(path, {});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : JobConfig();
}

LocalCluster::LocalCluster(std::unique_ptr<Transport> transport, const JobConfig& job)
    : job_(job),
      memory_(transport->shard_memory()),
      coordinator_(job),
      transport_(std::move(transport)) {
  coordinator_address_ = transport_->Serve(coordinator_.client());
  coordinator_.Open(coordinator_address_);
  for (uint32_t i = 0; i < job.cluster().shards(); ++i) {
    shards_.push_back(MakeShard(/*incarnation=*/0));
    shard_addresses_.push_back(transport_->Serve(shards_[i]->shard()));
    const absl::Status joined = shards_[i]->Join(coordinator_address_, shard_addresses_[i]);
    EXPECT_TRUE(joined.ok()) << joined;
    EXPECT_EQ(shards_[i]->ordinal(), i);  // in the order of joining
  }
}

LocalCluster::~LocalCluster() {
  // Nothing is parked any more when the transport goes, which would wait for it; and the transport
  // goes first, so that no call of another thread finds a shard or a coordinator that is gone.
  for (auto& shard : shards_) shard->Stop();
  for (auto& shard : lost_shards_) shard->Stop();
  coordinator_.Close();
  transport_.reset();
}

void LocalCluster::CutCoordinator() {
  coordinator_.Close();
  transport_->CutCoordinator();
}

std::unique_ptr<TestShard> LocalCluster::MakeShard(uint64_t incarnation) {
  return std::make_unique<TestShard>(
      job_, transport_->connector(),
      [this](const std::string& folder, const TensorSpec& tensor, const Slice& slice) {
        return checkpoint_ ? checkpoint_(folder, tensor, slice) : "";
      },
      incarnation, memory_.get());
}

void LocalCluster::GoBack(uint64_t version, const DataPosition& position,
                          std::optional<uint32_t> lost) {
  const std::string folder = absl::StrCat("/nowhere/checkpoints/", version);
  if (lost.has_value()) {
    ReplaceShard(*lost, [&](const TestCoordinator::NewShard& next) {
      coordinator_.GoBack(folder, version, position, next);
    });
  } else {
    coordinator_.GoBack(folder, version, position, std::nullopt);
  }
  for (const auto& shard : shards_) {
    EXPECT_TRUE(shard->AwaitEpoch(coordinator_.job_epoch()));
  }
}

void LocalCluster::ReplaceShard(uint32_t ordinal,
                                const std::function<void(const TestCoordinator::NewShard&)>& tell) {
  shards_[ordinal]->Stop();
  lost_shards_.push_back(std::move(shards_[ordinal]));
  TestCoordinator::NewShard next;
  next.ordinal = ordinal;
  next.incarnation = 1'000'000 + lost_shards_.size();
  shards_[ordinal] = MakeShard(next.incarnation);
  next.address = transport_->Serve(shards_[ordinal]->shard());
  shard_addresses_[ordinal] = next.address;
  tell(next);
  const absl::Status joined = shards_[ordinal]->Join(coordinator_address_, next.address);
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(shards_[ordinal]->ordinal(), ordinal);
}

TestShard& LocalCluster::shard(uint32_t ordinal) { return *shards_.at(ordinal); }

void LocalCluster::RunWorkers(int workers, const Work& work) {
  RunWorkers(workers, work, transport_->connector());
}

void LocalCluster::RunWorkers(int workers, const Work& work, Connector& connector) {
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&, i] {
      Session::Options options;
      options.job = job_;
      options.coordinator = coordinator_address_;
      options.address = absl::StrCat("127.0.0.1:", 60000 + i);
      if (!hosts_.empty()) options.runtime = std::make_shared<RuntimeOn>(hosts_[i]);
      auto session = Session::Join(options, connector);
      ASSERT_TRUE(session.ok()) << session.status();
      work(**session);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

GetStatusReply LocalCluster::Status() {
  absl::Notification answered;
  GetStatusReply status;
  transport_->connector()
      .ConnectCoordinator(coordinator_address_)
      ->GetStatus({}, SteadyNow() + absl::Seconds(10), [&](absl::StatusOr<GetStatusReply> reply) {
        EXPECT_TRUE(reply.ok()) << reply.status();
        if (reply.ok()) status = *std::move(reply);
        answered.Notify();
      });
  answered.WaitForNotification();
  return status;
}

}  // namespace parley
