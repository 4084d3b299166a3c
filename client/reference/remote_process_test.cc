// References between three real processes, which are killed: what they hold goes, and who holds
// what was theirs hears of it.
//
// Run as `... process LISTEN LEASE WAY` it is one of the processes that the test calls; WAY:
// "local" where values may come through shared memory, or "direct".
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/reference/remote_agent.h"
#include "client/reference/values_for_test.h"
#include "common/child_for_test.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(2);

// A process whose functions keep references and hand them on.
class Process {
 public:
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::string& listen,
                                                        absl::Duration lease,
                                                        const std::string& way) {
    auto process = std::make_unique<Process>();
    RemoteAgent::Options options;
    options.job = "three processes";
    options.listen = listen;
    options.lease = lease;
    options.shares_memory = way == "local";
    Process* const self = process.get();
    absl::StatusOr<std::unique_ptr<RemoteAgent>> agent = RemoteAgent::Start(
        options, {{"make", [](const RemoteCall&) { return Numbers({7}); }},
                  {"add", Add},
                  {"keep", [self](const RemoteCall& call) { return self->Keep(call); }},
                  {"add kept",
                   [self](const RemoteCall&) {
                     return Add({"", self->kept(), {}});
                   }},
                  {"forget", [self](const RemoteCall&) { return self->Forget(); }},
                  {"hand on", [self](const RemoteCall& call) { return self->HandOn(call); }},
                  {"pid", [](const RemoteCall&) { return Text(absl::StrCat(::getpid())); }},
                  {"counts", [self](const RemoteCall&) { return self->Counts(); }}});
    if (!agent.ok()) return agent.status();
    process->agent_ = *std::move(agent);
    return process;
  }

  RemoteAgent& agent() { return *agent_; }

  std::vector<RemoteReference> kept() {
    absl::MutexLock lock(&mu_);
    return kept_;
  }
  absl::StatusOr<RemoteValue> Forget() {
    std::vector<RemoteReference> dropped;
    absl::MutexLock lock(&mu_);
    dropped.swap(kept_);
    return RemoteValue();
  }

 private:
  absl::StatusOr<RemoteValue> Keep(const RemoteCall& call) {
    absl::MutexLock lock(&mu_);
    kept_.insert(kept_.end(), call.arguments.begin(), call.arguments.end());
    return RemoteValue();
  }
  // Has the process whose address is the first argument keep what is kept here.
  absl::StatusOr<RemoteValue> HandOn(const RemoteCall& call) {
    const absl::StatusOr<ValuePtr> to = call.arguments.at(0).Fetch(Soon());
    if (!to.ok()) return to.status();
    const std::string address = TextOf(**to);
    if (absl::Status status = agent_->Connect(address, Soon()); !status.ok()) return status;
    const absl::StatusOr<RemoteReference> done = agent_->Call(address, "keep", kept());
    if (!done.ok()) return done.status();
    const absl::StatusOr<ValuePtr> nothing = done->Fetch(Soon());
    if (!nothing.ok()) return nothing.status();
    return RemoteValue();
  }
  // Values that live here beside the one that this makes, what is held of others, and calls that
  // came over direct connections.
  absl::StatusOr<RemoteValue> Counts() {
    const RemoteAgent::Counts counts = agent_->counts();
    return Numbers({static_cast<float>(counts.values) - 1, static_cast<float>(counts.held),
                    static_cast<float>(counts.direct)});
  }

  std::unique_ptr<RemoteAgent> agent_;
  absl::Mutex mu_;
  std::vector<RemoteReference> kept_ ABSL_GUARDED_BY(mu_);
};

// This process drives, x and y are others.
class RemoteProcessTest : public ::testing::Test {
 protected:
  void Begin(absl::Duration lease = kLease, const std::string& way = "local") {
    lease_ = lease;
    way_ = way;
    auto self = Process::Start("127.0.0.1:0", lease, way);
    ASSERT_TRUE(self.ok()) << self.status();
    self_ = *std::move(self);
    x_ = MakeChild("127.0.0.1:0");
    y_ = MakeChild("127.0.0.1:0");
    for (const auto* child : {&x_, &y_}) {
      ASSERT_EQ(agent().Connect((*child)->first_line(), Soon()), absl::OkStatus());
    }
  }

  std::unique_ptr<ChildForTest> MakeChild(const std::string& listen) {
    return std::make_unique<ChildForTest>(
        std::vector<std::string>{"process", listen, absl::FormatDuration(lease_), way_});
  }

  RemoteAgent& agent() { return self_->agent(); }
  std::string x() const { return x_->first_line(); }
  std::string y() const { return y_->first_line(); }

  // Has another process run a function, and waits for the end.
  absl::StatusOr<ValuePtr> Run(const std::string& address, const std::string& function,
                               const std::vector<RemoteReference>& arguments = {}) {
    const auto result = agent().Call(address, function, arguments);
    return result.ok() ? result->Fetch(Soon()) : absl::StatusOr<ValuePtr>(result.status());
  }

  // Until that many values live at x; what its leases take, and more.
  void ExpectValuesAt(const std::string& address, float values) {
    const absl::Time begin = SteadyNow();
    std::vector<float> counts;
    do {
      const auto counted = Run(address, "counts");
      ASSERT_TRUE(counted.ok()) << counted.status();
      counts = NumbersOf(**counted);
    } while (counts[0] != values && SteadyNow() < begin + 10 * lease_);
    EXPECT_EQ(counts[0], values);
    std::printf(
        "%g values after %s\n", values,
        absl::FormatDuration(absl::Trunc(SteadyNow() - begin, absl::Milliseconds(1))).c_str());
  }

  // Calls of x's that came over direct connections, with the one that asks.
  float DirectCalls() {
    const auto counted = Run(x(), "counts");
    EXPECT_TRUE(counted.ok()) << counted.status();
    return counted.ok() ? NumbersOf(**counted)[2] : 0;
  }

  absl::Duration lease_;
  std::string way_;
  std::unique_ptr<Process> self_;
  std::unique_ptr<ChildForTest> x_;
  std::unique_ptr<ChildForTest> y_;
};

TEST_F(RemoteProcessTest, WhatIsHandedOnLivesUntilTheLastOneDropsIt) {
  Begin();
  {
    const auto made = agent().Call(x(), "make", {});
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE(Run(y(), "keep", {*made}).ok());
  }
  ExpectValuesAt(x(), 1);  // y has it, who got it from us
  ASSERT_TRUE(Run(y(), "hand on", {agent().Make(Text(agent().address()))}).ok());
  ASSERT_TRUE(Run(y(), "forget").ok());
  ExpectValuesAt(x(), 1);  // we have it, who got it from y
  const auto sum = Add({"", self_->kept(), {}});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(NumbersOf(*sum), std::vector<float>{7});
  ASSERT_TRUE(self_->Forget().ok());
  ExpectValuesAt(x(), 0);
}

TEST_F(RemoteProcessTest, WhoHeldWhatAKilledOneHadIsTold) {
  Begin();
  const auto made = agent().Call(x(), "make", {});
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(Run(y(), "keep", {*made}).ok());
  const std::string lost = x();
  x_->Kill();
  const absl::Time killed = SteadyNow();
  const absl::Status here = made->Fetch(Soon()).status();
  EXPECT_EQ(here.code(), absl::StatusCode::kAborted) << here;
  EXPECT_THAT(std::string(here.message()), HasSubstr(lost));
  std::printf(
      "told after %s: %s\n",
      absl::FormatDuration(absl::Trunc(SteadyNow() - killed, absl::Milliseconds(1))).c_str(),
      std::string(here.message()).c_str());
  const absl::Status there = Run(y(), "add kept").status();
  EXPECT_EQ(there.code(), absl::StatusCode::kAborted) << there;
  EXPECT_THAT(std::string(there.message()), HasSubstr(lost));
  // From now on nobody waits: it cannot even be handed on.
  EXPECT_EQ(agent().Call(y(), "keep", {*made}).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(agent().Call(lost, "make", {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RemoteProcessTest, WhatWasBeforeARestartIsRefusedLongBeforeTheLeaseIsOver) {
  Begin(absl::Minutes(10));
  const auto made = agent().Call(x(), "make", {});
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(made->Fetch(Soon()).ok());
  const std::string address = x();
  x_->Kill();
  x_ = MakeChild(address);
  const absl::Status status = made->Fetch(Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  ASSERT_EQ(agent().Connect(address, Soon()), absl::OkStatus());
  EXPECT_TRUE(Run(address, "make").ok());
}

TEST_F(RemoteProcessTest, WhatAKilledOneHeldIsFreed) {
  Begin();
  {
    const auto made = agent().Call(x(), "make", {});
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE(Run(y(), "keep", {*made, agent().Make(Numbers({1}))}).ok());
  }
  ExpectValuesAt(x(), 1);
  EXPECT_EQ(agent().counts().values, 1u);
  y_->Kill();
  ExpectValuesAt(x(), 0);
  const absl::Time deadline = SteadyNow() + 10 * lease_;
  while (agent().counts().values != 0 && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(agent().counts().values, 0u);
}

// x reads nothing for longer than a small message may take. A slow network is no other.
TEST_F(RemoteProcessTest, ALargeValueComesWithItsFirstAttempt) {
  Begin(absl::Seconds(30), "direct");
  const absl::Time deadline = Soon();
  while (DirectCalls() == 0 && SteadyNow() < deadline) {
  }
  // Has x connect with us, and then tell that it uses that: values go along from here on.
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Run(x(), "hand on", {agent().Make(Text(agent().address()))}).ok());
  }
  const auto text = Run(x(), "pid");
  ASSERT_TRUE(text.ok()) << text.status();
  pid_t pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(TextOf(**text), &pid));
  const std::vector<float> large((60 << 20) / sizeof(float), 1);
  const float before = DirectCalls();
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const auto sum = agent().Call(x(), "add", {agent().Make(Numbers(large))});
  absl::SleepFor(absl::Seconds(6));
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  ASSERT_TRUE(sum.ok()) << sum.status();
  const auto value = sum->Fetch(Soon());
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_TRUE(NumbersOf(**value) == large);
  // Two calls and two fetches, of which the first may have been there when x counted; and maybe a
  // drop of what was before.
  EXPECT_GE(DirectCalls(), before + 3) << "the connection has stayed";
}

int BeProcess(const std::string& listen, absl::Duration lease, const std::string& way) {
  const auto process = Process::Start(listen, lease, way);
  if (!process.ok()) {
    std::fprintf(stderr, "%s\n", process.status().ToString().c_str());
    return 1;
  }
  TellParent((*process)->agent().address());
  ::pause();  // until it is killed
  return 0;
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  absl::Duration lease;
  if (argc == 5 && std::string(argv[1]) == "process" && absl::ParseDuration(argv[3], &lease)) {
    return parley::BeProcess(argv[2], lease, argv[4]);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
