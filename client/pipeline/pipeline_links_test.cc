#include "client/pipeline/pipeline_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/reference/reference_service.h"
#include "client/torch/testing/fake_session.h"
#include "common/rpc/server.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

// The session, which gives back what it is told: of Aborted it would have waited for the
// coordinator's word.
TEST(PipelineLinks, OfAProcessThatCannotBeReachedTheCoordinatorHasAWord) {
  FakeSession session({}, 0.1);
  PipelineLinks::Options options;
  options.job = "test";
  options.listen = "127.0.0.1:0";
  const auto links = PipelineLinks::Start(options, session);
  ASSERT_TRUE(links.ok()) << links.status();
  EXPECT_EQ((*links)->GiveUp(absl::UnavailableError("stage 1 cannot be reached")).status(),
            absl::AbortedError("stage 1 cannot be reached"));
  const absl::Status fault = absl::InternalError("a fault of the GPU");
  EXPECT_EQ((*links)->GiveUp(fault).status(), fault);
}

constexpr absl::Duration kLease = absl::Seconds(2);  // a machine may stand still for one

// A process of a pipeline, whose server can be away for a time.
class Process {
 public:
  explicit Process(Role role) {
    Serve("127.0.0.1:0");
    address_ = server_->address();
    member_.set_role(role);
    // Another name than the process itself has: so that nothing goes through shared memory.
    member_.set_address(absl::StrCat("localhost", address_.substr(address_.rfind(':'))));
    PipelineLinks::Options options;
    options.job = "test";
    // Nobody is there, so that there are no direct connections: all goes by the server.
    options.listen = "192.0.2.1:0";
    options.address = address_;
    options.service = &service_;
    options.liveness = absl::Seconds(4);
    options.lease = kLease;
    auto links = PipelineLinks::Start(options, session_);
    EXPECT_TRUE(links.ok()) << links.status();
    links_ = *std::move(links);
  }
  ~Process() {
    links_.reset();
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  }

  PipelineLinks& links() { return *links_; }
  FakeSession& session() { return session_; }
  const Member& member() const { return member_; }

  void Refuse() {
    server_->Shutdown(absl::ZeroDuration());
    server_.reset();
  }
  void ServeAgain() { Serve(address_); }

  absl::Status Tell(uint32_t microbatch) {
    const PipelineKey key = links_->Key(PipelineKind::kActivation, 0, microbatch);
    std::vector<ValueTensor> tensors = {TensorOf(std::vector<int64_t>{microbatch})};
    return member_.role() == WORKER ? links_->ToStage(0, key, std::move(tensors))
                                    : links_->ToWorker(key, std::move(tensors));
  }
  absl::Status Await(uint32_t microbatch) {
    return links_->Await(links_->Key(PipelineKind::kActivation, 0, microbatch), "").status();
  }

 private:
  void Serve(const std::string& listen) {
    auto server = RpcServer::Start(listen, {&service_}, RpcObserver());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  FakeSession session_{{}, 0.1};
  ReferenceService service_;
  std::unique_ptr<RpcServer> server_;
  std::string address_;
  Member member_;
  std::unique_ptr<PipelineLinks> links_;
};

class PipelineLinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (Process* const process : {&worker_, &stage_}) {
      Session::Pipeline& in = process->session().in;
      in.composition = 1;
      in.members = {worker_.member(), stage_.member()};
      in.part = process == &worker_ ? 0 : 1;
    }
    BeginUnit();
  }
  void BeginUnit() {
    for (Process* const process : {&worker_, &stage_}) {
      const absl::Status begun = process->links().BeginUnit();
      ASSERT_TRUE(begun.ok()) << begun;
    }
  }
  // gRPC takes its time before it tries again, and this lease is shorter than that: a session can
  // be over before this process hears that it has it.
  absl::Status TellTheStage(uint32_t microbatch) {
    const absl::Time deadline = absl::Now() + absl::Seconds(40);
    absl::Status told = worker_.Tell(microbatch);
    while (!told.ok() && absl::Now() < deadline) told = worker_.Tell(microbatch);
    return told;
  }
  static void ExpectLost(const absl::Status& status) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("stage 0 at localhost:"));
  }

  Process worker_{WORKER};
  Process stage_{STAGE};
};

TEST_F(PipelineLinksTest, WhatIsSentHasCome) {
  for (const uint32_t k : {0, 1}) ASSERT_TRUE(worker_.Tell(k).ok());
  EXPECT_TRUE(worker_.links().AwaitSent().ok());
  for (const uint32_t k : {1, 0}) EXPECT_TRUE(stage_.Await(k).ok());
  EXPECT_TRUE(worker_.links().lost().ok());
  EXPECT_TRUE(stage_.links().AwaitSent().ok()) << "nothing";
}

// The other one waits for it, and this one for what comes of it: nobody would send it again.
TEST_F(PipelineLinksTest, AMessageThatWasOnItsWayWhenTheLinkWasLostEndsTheUnit) {
  ASSERT_TRUE(worker_.Tell(0).ok());
  ASSERT_TRUE(stage_.Await(0).ok());
  stage_.Refuse();
  ASSERT_TRUE(worker_.Tell(1).ok());
  // Where nobody notices the test is to end, too.
  absl::Notification known;
  std::thread end([&] {
    if (known.WaitForNotificationWithTimeout(absl::Seconds(20))) return;
    EXPECT_TRUE(stage_.Tell(7).ok());
  });
  ExpectLost(worker_.Await(7));
  known.Notify();
  end.join();
  stage_.ServeAgain();
  ExpectLost(worker_.Tell(2));
  ExpectLost(worker_.Await(7));
  ExpectLost(worker_.links().AwaitSent());
  // In the next unit they are connected again, as soon as something is sent.
  BeginUnit();
  ASSERT_EQ(TellTheStage(3), absl::OkStatus());
  EXPECT_TRUE(stage_.Await(3).ok());
  EXPECT_TRUE(worker_.links().AwaitSent().ok());
}

// Nothing was on its way: it goes on.
TEST_F(PipelineLinksTest, ALinkThatWasLostWhileNothingWasSentIsMadeAgain) {
  ASSERT_TRUE(worker_.Tell(0).ok());
  ASSERT_TRUE(worker_.links().AwaitSent().ok());
  stage_.Refuse();
  const absl::Time deadline = absl::Now() + absl::Seconds(40);
  while (stage_.links().counts().sessions != 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  ASSERT_EQ(stage_.links().counts().sessions, 0) << "the stage has missed it for a lease";
  stage_.ServeAgain();
  ASSERT_EQ(TellTheStage(1), absl::OkStatus());
  EXPECT_TRUE(stage_.Await(1).ok());
  EXPECT_TRUE(worker_.links().lost().ok());
}

}  // namespace
}  // namespace parley
