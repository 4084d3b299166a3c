// A worker and a shard with shared memory between them, and what a peer can do wrong with it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "server/parameter_shard/local_door_fixture.h"

namespace parley::testing {
namespace {

constexpr size_t kElements = kLocalElements;

absl::Time Soon() { return LocalWorker::Soon(); }
Floats FloatsOf(const TensorPull& pulled) { return LocalWorker::FloatsOf(pulled); }

class LocalDoorTest : public ::testing::Test {
 protected:
  LocalDoorTest()
      : shard_(absl::StrCat("127.0.0.1:", ::getpid(), " ", absl::ToUnixNanos(SteadyNow()))) {
    EXPECT_TRUE(shard_.status().ok()) << shard_.status();
  }
  std::unique_ptr<LocalWorker> Connect() {
    auto worker = std::make_unique<LocalWorker>();
    EXPECT_TRUE(worker->Connect(shard_.address()));
    return worker;
  }
  uint64_t CopiedBytes() {
    return shard_.core().Read([](const Shard* shard) { return shard->counts().copied_bytes; });
  }

  const ClusterView view_ = LocalView();
  LocalShard shard_;
};

TEST_F(LocalDoorTest, StepsGoThrough) {
  const auto worker = Connect();
  for (uint64_t step = 1; step <= 5; ++step) {
    ASSERT_EQ(worker->Step(step, static_cast<float>(step)), absl::OkStatus());
    const auto pulled = worker->Pull(step);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(FloatsOf(*pulled), Floats(kElements, -static_cast<float>(step * (step + 1) / 2)));
    EXPECT_TRUE(pulled->slices[0].loan->Stands());
  }
  EXPECT_EQ(CopiedBytes(), 0u);  // each answer was read before the next verdict
}

TEST_F(LocalDoorTest, GradientsAreReadWhereTheyLieWhenTheStepIsDecided) {
  const auto worker = Connect();
  worker->Fill(1.0f);
  ASSERT_TRUE(worker->Push(1).ok());
  worker->gradient()[17] = 5;  // without a word: nobody copied it
  ASSERT_TRUE(worker->Complete(1).ok());
  EXPECT_EQ(FloatsOf(*worker->Pull(1))[17], -5);
}

TEST_F(LocalDoorTest, AGradientThatIsWrittenBeforeTheVerdictEndsTheStepAndReachesNobody) {
  const auto worker = Connect();
  ASSERT_TRUE(worker->Push(1).ok());
  worker->arena().Recall();
  const auto decided = worker->Complete(1);
  EXPECT_FALSE(decided.ok());
  const auto error = shard_.core().TakeNews().error;
  EXPECT_THAT(error, ::testing::HasSubstr("contributor 0 has written again what it had lent"));
  EXPECT_FALSE(worker->Pull(1).ok());
}

TEST_F(LocalDoorTest, AWorkerThatGivesAStepUpLeavesItsGradientToTheShard) {
  const auto worker = Connect();
  worker->Fill(1.0f);
  ASSERT_TRUE(worker->Push(1).ok());
  ASSERT_TRUE(worker->arena().LeaveToReaders().ok());
  worker->Fill(100.0f);  // other memory, at the same address
  ASSERT_TRUE(worker->Complete(1).ok());
  EXPECT_EQ(FloatsOf(*worker->Pull(1)), Floats(kElements, -1));
  // And goes on with that one, which the shard has not seen yet.
  ASSERT_EQ(worker->Step(2, 2), absl::OkStatus());
  EXPECT_EQ(FloatsOf(*worker->Pull(2)), Floats(kElements, -3));
}

TEST_F(LocalDoorTest, AWorkerThatIsGoneLeavesItsGradientToTheShard) {
  auto worker = Connect();
  worker->Fill(3.0f);
  ASSERT_TRUE(worker->Push(1).ok());
  // Its complete has come; then it dies.
  CompleteRequest request;
  *request.mutable_header() = HeaderOf(view_, 1);
  request.set_step(1);
  request.mutable_share()->set_weight(1);
  worker.reset();
  absl::Notification decided;
  shard_.core().Complete(request, {SteadyNow(), Soon()},
                         [&](const absl::StatusOr<CompleteReply>&) { decided.Notify(); });
  decided.WaitForNotification();
  EXPECT_EQ(FloatsOf(*Connect()->Pull(1)), Floats(kElements, -3));
}

// An old incarnation that has not heard yet goes on, in its own segments, which the shard still
// has.
TEST_F(LocalDoorTest, AFencedWriterThatGoesOnBesideItsSuccessorChangesNothing) {
  const auto fenced = Connect();
  fenced->Fill(100.0f);
  ASSERT_TRUE(fenced->Push(1).ok());
  const ClusterView view = WithMemberAt(view_, 0, 2);
  ASSERT_EQ(shard_.core().SetView(view, SteadyNow()), absl::OkStatus());
  std::atomic<uint64_t> step = 1;
  std::atomic<uint64_t> refused = 0;
  std::thread goes_on([&] {
    for (uint64_t now = 1; now != 0; now = step) {
      fenced->Fill(static_cast<float>(++refused));
      const uint32_t attempt = now == 1 ? 1 : 0;
      EXPECT_TRUE(absl::IsAborted(fenced->Push(now, attempt).status()));
      EXPECT_TRUE(absl::IsAborted(fenced->Complete(now, attempt).status()));
    }
  });
  // What the old one had sent went with its attempt.
  const auto successor = Connect();
  successor->Become(view, 2);
  absl::Status status;
  Floats values(kElements);
  while (status.ok() && (step <= 300 || refused < 100)) {
    status = successor->Step(step, 1, step == 1 ? 1 : 0);
    if (!status.ok()) break;
    const auto pulled = successor->Pull(step);
    status = pulled.status();
    if (status.ok()) values = FloatsOf(*pulled);
    if (values != Floats(kElements, -static_cast<float>(step))) break;
    ++step;
  }
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GT(step.exchange(0), 300u) << "is not what the successor has sent: " << values[0];
  goes_on.join();
}

TEST_F(LocalDoorTest, WhoReadsAVersionKeepsItWhileTheJobGoesOn) {
  const auto slow = Connect();
  const auto worker = Connect();
  ASSERT_EQ(worker->Step(1, 1), absl::OkStatus());
  const auto held = slow->Pull(1);
  ASSERT_TRUE(held.ok());
  for (uint64_t step = 2; step <= 4; ++step) ASSERT_EQ(worker->Step(step, 1), absl::OkStatus());
  EXPECT_EQ(FloatsOf(*held), Floats(kElements, -1));
  EXPECT_TRUE(held->slices[0].loan->Stands());
  EXPECT_EQ(CopiedBytes(), kElements * sizeof(float));  // once
}

// The pins go with the connection; who still reads finds out.
TEST_F(LocalDoorTest, WhatAReaderOfABrokenConnectionReadsIsWrittenAgainAndItFindsOut) {
  const auto worker = Connect();
  const auto reader = Connect();
  auto held = reader->Pull(0);
  ASSERT_TRUE(held.ok());
  // The job has gone on in other memory, and this is written when the shard needs more of it: here
  // for each step, since somebody reads all versions. Few of them: of more than a guest may hold
  // the oldest are written again first, and this one never.
  ASSERT_EQ(worker->Step(1, 1), absl::OkStatus());
  reader->Disconnect();
  const absl::Time deadline = Soon();
  std::vector<absl::StatusOr<TensorPull>> versions;
  for (uint64_t step = 2; held->slices[0].loan->Stands() && SteadyNow() < deadline; ++step) {
    versions.push_back(worker->Pull(step - 1));
    ASSERT_TRUE(versions.back().ok());
    ASSERT_EQ(worker->Step(step, 1), absl::OkStatus());
    absl::SleepFor(absl::Milliseconds(1 << std::min<uint64_t>(step, 9)));
  }
  EXPECT_FALSE(held->slices[0].loan->Stands());
}

TEST_F(LocalDoorTest, CallsEndWhenTheDoorCloses) {
  const auto worker = Connect();
  PullRequest request;
  *request.mutable_header() = HeaderOf(view_, 1);
  request.set_version(7);  // parks
  request.add_slices(0);
  absl::Notification over;
  absl::Status status;
  worker->client().PullTensors(request, Soon(), [&](const absl::StatusOr<TensorPull>& pulled) {
    status = pulled.status();
    over.Notify();
  });
  shard_.CloseDoor();
  ASSERT_TRUE(over.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(shard_.address()));
  // From now on calls go the other way.
  const absl::Time deadline = Soon();
  while (worker->client().ReadsLentMemory() && SteadyNow() < deadline) {
    std::this_thread::yield();  // the link's thread has told of the end, and then closes
  }
  EXPECT_FALSE(worker->client().ReadsLentMemory());
  EXPECT_FALSE(worker->Push(1).ok());
}

TEST_F(LocalDoorTest, CallsEndAtTheirDeadlines) {
  const auto worker = Connect();
  const auto pulled = worker->Pull(7, SteadyNow() + absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(pulled.status())) << pulled.status();
}

TEST_F(LocalDoorTest, WhatLiesElsewhereGoesTheOtherWay) {
  const auto worker = Connect();
  const std::string elsewhere(kElements * sizeof(float), '\0');
  TensorPush push = worker->MakePush(1);
  push.slices[0].bytes = std::string_view(elsewhere);
  EXPECT_FALSE(worker->Push(push).ok());  // as NoRemote does
  push = worker->MakePush(1);
  push.slices[0].loan.reset();  // not lent
  EXPECT_FALSE(worker->Push(push).ok());
}

// A peer that says what no worker of ours says.
class HostilePeerTest : public LocalDoorTest {
 protected:
  HostilePeerTest() {
    auto segment = MemorySegment::Create(1 << 20);
    EXPECT_TRUE(segment.ok());
    segment_ = *std::move(segment);
  }

  std::unique_ptr<LocalSocket> Come(bool greet = true) {
    auto socket = LocalSocket::Connect(LocalName(shard_.address()));
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (greet) {
      LocalRequest hello;
      hello.set_call(1);
      hello.mutable_hello()->set_address(shard_.address());
      EXPECT_TRUE((*socket)->Send(hello.SerializeAsString()).ok());
      EXPECT_TRUE((*socket)->Receive(Soon()).ok());
    }
    return *std::move(socket);
  }
  // A push that is right, of segment 1, which comes along.
  LocalRequest MakeRequest() const {
    LocalRequest request;
    request.set_call(1);
    request.set_patience_us(1'000'000);
    PushRequest& push = *request.mutable_push();
    *push.mutable_header() = HeaderOf(view_, 1);
    push.set_step(1);
    LocalSlice& slice = *request.add_slices();
    slice.set_dtype(F32);
    slice.set_segment(1);
    slice.set_offset(64);
    slice.set_bytes(kElements * sizeof(float));
    request.add_segments(1);
    return request;
  }
  // Nobody answers any more.
  static bool IsOver(LocalSocket& socket) {
    return absl::IsUnavailable(socket.Receive(Soon()).status());
  }
  void ExpectRefused(const std::function<void(LocalRequest&)>& spoil,
                     std::optional<int> file = std::nullopt) {
    const auto socket = Come();
    LocalRequest request = MakeRequest();
    spoil(request);
    ASSERT_TRUE(
        socket->Send(request.SerializeAsString(), {file.value_or(segment_->fd().get())}).ok());
    EXPECT_TRUE(IsOver(*socket)) << request.ShortDebugString();
  }
  ~HostilePeerTest() override {
    const auto worker = Connect();
    EXPECT_EQ(worker->Step(1, 1), absl::OkStatus());
    EXPECT_EQ(FloatsOf(*worker->Pull(1)), Floats(kElements, -1));  // nothing of theirs
  }

  std::shared_ptr<MemorySegment> segment_;
};

TEST_F(HostilePeerTest, PlacesThatAreNotThereAreRefused) {
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_segment(2); });
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_offset(1 << 20); });
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_offset(UINT64_MAX - 100); });
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_bytes(UINT64_MAX); });
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_bytes((1 << 20) - 63); });
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_count_offset(1 << 20); });
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_count_offset((1 << 20) - 7); });
  ExpectRefused([](LocalRequest& r) { r.mutable_slices(0)->set_count_offset(4); });
}

TEST_F(HostilePeerTest, SegmentsThatAreNotSafeAreRefused) {
  const FileDescriptor unsealed(::memfd_create("unsealed", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 1 << 20), 0);
  ExpectRefused([](LocalRequest&) {}, unsealed.get());
  const FileDescriptor file(::open("/proc/self/exe", O_RDONLY));
  ExpectRefused([](LocalRequest&) {}, file.get());
  ExpectRefused([](LocalRequest& r) { r.clear_segments(); });
  ExpectRefused([](LocalRequest& r) { r.add_segments(2); });
  // The same number for another one.
  const auto socket = Come();
  LocalRequest request = MakeRequest();
  request.mutable_push()->set_step(100);  // waits: has no effect
  ASSERT_TRUE(socket->Send(request.SerializeAsString(), {segment_->fd().get()}).ok());
  ASSERT_TRUE(socket->Receive(Soon()).ok());
  ASSERT_TRUE(socket->Send(request.SerializeAsString(), {segment_->fd().get()}).ok());
  EXPECT_TRUE(IsOver(*socket));
}

TEST_F(HostilePeerTest, WordsThatAreNoneAreRefused) {
  for (const std::string& bytes : {std::string("garbage"), std::string(1000, '\xff'),
                                   LocalRequest().SerializeAsString() + "\x08"}) {
    const auto socket = Come();
    ASSERT_TRUE(socket->Send(bytes).ok());
    EXPECT_TRUE(IsOver(*socket));
  }
  ExpectRefused([](LocalRequest& r) { r.clear_push(); });
  ExpectRefused([&](LocalRequest& r) { r.mutable_hello()->set_address(shard_.address()); });
}

TEST_F(HostilePeerTest, WhoDoesNotSayWhomItMeansIsTurnedAway) {
  for (const bool says : {false, true}) {
    const auto socket = Come(/*greet=*/false);
    LocalRequest request = MakeRequest();
    if (says) request.mutable_hello()->set_address("127.0.0.1:1");
    ASSERT_TRUE(socket->Send(request.SerializeAsString(), {segment_->fd().get()}).ok());
    EXPECT_TRUE(IsOver(*socket));
  }
}

TEST_F(HostilePeerTest, CallsAreFencedAsThoseOverGrpc) {
  const auto socket = Come();
  LocalRequest request = MakeRequest();
  request.mutable_push()->mutable_header()->set_incarnation(999);
  ASSERT_TRUE(socket->Send(request.SerializeAsString(), {segment_->fd().get()}).ok());
  const auto message = socket->Receive(Soon());
  ASSERT_TRUE(message.ok());
  LocalReply reply;
  ASSERT_TRUE(reply.ParseFromString(message->bytes));
  EXPECT_EQ(reply.code(), static_cast<int>(absl::StatusCode::kAborted));
}

TEST_F(HostilePeerTest, WhoNeverSaysThatItHasReadHoldsLittle) {
  const auto socket = Come();
  for (uint64_t call = 1; call <= 500; ++call) {
    LocalRequest request;
    request.set_call(call);
    request.set_patience_us(1'000'000);
    *request.mutable_pull()->mutable_header() = HeaderOf(view_, 1);
    request.mutable_pull()->add_slices(0);
    ASSERT_TRUE(socket->Send(request.SerializeAsString()).ok());
    ASSERT_TRUE(socket->Receive(Soon()).ok());
  }
}

}  // namespace
}  // namespace parley::testing
