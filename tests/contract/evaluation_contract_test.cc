// An evaluation of values that are written meanwhile. (That its parts add up is in
// training_contract_test.cc.)
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "client/forwarding_coordinator.h"
#include "client/forwarding_shard.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/forwarding_connector.h"

namespace parley {
namespace {

class EvaluationContract : public ContractTest {};
PARLEY_OVER_ALL_TRANSPORTS(EvaluationContract);

// Makes all calls over another connector. What a shard on this machine shows of its values is
// written again, as it seems, whenever the test says so.
class RewritingConnector final : public ForwardingConnector {
 public:
  explicit RewritingConnector(Connector& to) : ForwardingConnector(to) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string& address) override {
    return std::make_shared<Coordinator>(ForwardingConnector::ConnectCoordinator(address), *this);
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string& address) override {
    return std::make_shared<Shard>(ForwardingConnector::ConnectShard(address), *this);
  }

  void Rewrite() { ++count_; }
  int reports() const { return reports_; }  // of evaluations

 private:
  class Coordinator final : public ForwardingCoordinator<Coordinator> {
   public:
    Coordinator(std::shared_ptr<CoordinatorClient> to, RewritingConnector& owner)
        : to_(std::move(to)), owner_(owner) {}
    template <class Request, class Reply>
    void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
                 absl::Time deadline, Done<Reply> done) {
      (to_.get()->*method)(request, deadline, std::move(done));
    }
    void ReportEvaluation(const ReportEvaluationRequest& request, absl::Time deadline,
                          Done<ReportEvaluationReply> done) override {
      ++owner_.reports_;
      to_->ReportEvaluation(request, deadline, std::move(done));
    }

   private:
    const std::shared_ptr<CoordinatorClient> to_;
    RewritingConnector& owner_;
  };

  class Shard final : public ForwardingShard {
   public:
    Shard(std::shared_ptr<ShardClient> to, RewritingConnector& owner)
        : ForwardingShard(std::move(to)), owner_(owner) {}
    void PullTensors(const PullRequest& request, absl::Time deadline,
                     Done<TensorPull> done) override {
      remote()->PullTensors(
          request, deadline,
          [&count = owner_.count_, done = std::move(done)](absl::StatusOr<TensorPull> reply) {
            if (reply.ok()) {
              for (TensorSlice& slice : reply->slices) {
                if (slice.loan.has_value()) slice.loan = Loan{&count, count};
              }
            }
            done(std::move(reply));
          });
    }

   private:
    RewritingConnector& owner_;
  };

  std::atomic<uint64_t> count_ = 0;
  std::atomic<int> reports_ = 0;
};

TEST_P(EvaluationContract, AnEvaluationOfValuesThatWereWrittenMeanwhileIsMadeAnewAndCountsOnce) {
  auto cluster = MakeCluster(1, 1, "steps: 1");
  RewritingConnector rewriting(cluster->transport().connector());
  cluster->RunWorkers(
      1,
      [&](Session& session) {
        StartTraining(session, 4000, 100);
        ASSERT_TRUE(session.NextStep().has_value());
        ASSERT_TRUE(session.Complete(0).ok());
        ASSERT_TRUE(session.Pull().ok());
        const bool reads_the_shards_memory =
            !session.ShownParts(0, 0, session.parameter(0).size()).empty();
        EXPECT_EQ(reads_the_shards_memory, GetParam() == std::string_view("Local"));
        Evaluation part;
        part.set_version(1);
        part.set_epoch(1);
        part.set_samples(100);
        for (const bool is_written : {true, false}) {
          const auto due = session.PullEvaluation();
          ASSERT_TRUE(due.ok()) << due.status();
          if (!is_written && !reads_the_shards_memory) {
            EXPECT_FALSE(due->has_value());
            break;
          }
          ASSERT_TRUE(due->has_value());
          EXPECT_EQ((*due)->version, 1);
          if (is_written) rewriting.Rewrite();
          const auto taken = session.ReportEvaluation(part);
          ASSERT_TRUE(taken.ok()) << taken.status();
          EXPECT_EQ(*taken, !is_written || !reads_the_shards_memory);
          ASSERT_TRUE(session.Pull().ok());
        }
        EXPECT_FALSE(session.PullEvaluation()->has_value());
        ExpectTheEnd(session);
      },
      rewriting);
  EXPECT_EQ(rewriting.reports(), 1);
  const GetStatusReply status = cluster->Status();
  ASSERT_EQ(status.evaluations_size(), 1);
  EXPECT_EQ(status.evaluations(0).samples(), 100);
}

}  // namespace
}  // namespace parley
