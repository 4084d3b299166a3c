// A worker and a shard with shared memory between them, and what a peer can do wrong with it.
#include "server/parameter_shard/local_door.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/local_connector.h"
#include "client/tensor_arena.h"
#include "client/testing/refusing_peers.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {
namespace {

constexpr size_t kElements = 5000;

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

template <class Reply>
absl::StatusOr<Reply> Wait(const std::function<void(Done<Reply>)>& call) {
  struct Answer {
    absl::Notification here;
    absl::StatusOr<Reply> reply;
  };
  const auto answer = std::make_shared<Answer>();
  call([answer](absl::StatusOr<Reply> reply) {
    answer->reply = std::move(reply);
    answer->here.Notify();
  });
  if (!answer->here.WaitForNotificationWithTimeout(absl::Seconds(60))) {
    return absl::DeadlineExceededError("the test gave up");
  }
  return std::move(answer->reply);
}

// What is not for the link is refused, so that a test sees which way a call went.
class NoRemote final : public Connector {
 public:
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return nullptr;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string&) override {
    return std::make_shared<RefusingShard>();
  }
};

// One shard with one tensor of zeros, one worker.
class LocalDoorTest : public ::testing::Test {
 protected:
  LocalDoorTest()
      : view_(MakeView({.tensors = {{"w", kElements}}, .workers = 1})),
        address_(absl::StrCat("127.0.0.1:", ::getpid(), " ", absl::ToUnixNanos(absl::Now()))),
        shard_(SummingJob(), {}, {nullptr, &values_}) {
    auto door = LocalDoor::Open({address_, &shard_, &values_, nullptr});
    EXPECT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
    shard_.Start(0);
    EXPECT_EQ(shard_.SetView(view_, absl::Now()), absl::OkStatus());
    const std::string zeros = BytesOf(Floats(kElements));
    EXPECT_EQ(shard_.StartSlice(0, {.values = zeros, .state = {}}, absl::Now()), absl::OkStatus());
  }

  // A worker's client, when it is connected.
  struct Worker {
    std::unique_ptr<Connector> connector = MakeLocalConnector(std::make_unique<NoRemote>());
    std::shared_ptr<ShardClient> client;
    std::unique_ptr<TensorArena> arena;
    float* gradient = nullptr;
  };
  Worker Connect() {
    Worker worker;
    worker.client = worker.connector->ConnectShard(address_);
    const absl::Time deadline = Soon();
    while (!worker.client->ReadsLentMemory() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_TRUE(worker.client->ReadsLentMemory());
    TensorSpec spec;
    spec.set_name("w");
    spec.set_dtype(F32);
    spec.add_shape(kElements);
    worker.arena = std::make_unique<TensorArena>(std::vector<TensorSpec>{spec},
                                                 worker.connector->memory());
    worker.gradient = reinterpret_cast<float*>(worker.arena->tensor(0).data());
    return worker;
  }

  TensorPush MakePush(const Worker& worker, uint64_t step) const {
    TensorPush push;
    *push.head.mutable_header() = HeaderOf(view_, 1);
    push.head.set_step(step);
    push.slices.push_back({0, F32, TensorBytes::Piece(worker.arena->tensor(0)),
                           worker.arena->owner(), worker.arena->Lend()});
    return push;
  }
  absl::StatusOr<PushReply> Push(const Worker& worker, uint64_t step) {
    return Wait<PushReply>([&](Done<PushReply> done) {
      worker.client->PushTensors(MakePush(worker, step), Soon(), std::move(done));
    });
  }
  absl::StatusOr<CompleteReply> Complete(const Worker& worker, uint64_t step) {
    CompleteRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_step(step);
    request.mutable_share()->set_weight(1);
    return Wait<CompleteReply>([&](Done<CompleteReply> done) {
      worker.client->Complete(request, Soon(), std::move(done));
    });
  }
  absl::StatusOr<TensorPull> Pull(const Worker& worker, uint64_t version) {
    PullRequest request;
    *request.mutable_header() = HeaderOf(view_, 1);
    request.set_version(version);
    request.add_slices(0);
    return Wait<TensorPull>([&](Done<TensorPull> done) {
      worker.client->PullTensors(request, Soon(), std::move(done));
    });
  }
  static Floats FloatsOf(const TensorPull& pulled) {
    Floats floats(pulled.slices[0].bytes.size() / sizeof(float));
    pulled.slices[0].bytes.CopyTo(reinterpret_cast<std::byte*>(floats.data()));
    return floats;
  }
  void Step(const Worker& worker, uint64_t step, float gradient) {
    worker.arena->Recall();
    std::fill_n(worker.gradient, kElements, gradient);
    const auto pushed = Push(worker, step);
    ASSERT_TRUE(pushed.ok()) << pushed.status();
    const auto decided = Complete(worker, step);
    ASSERT_TRUE(decided.ok()) << decided.status();
    EXPECT_EQ(decided->verdict().outcome(), Verdict::APPLY);
  }
  uint64_t CopiedBytes() {
    return shard_.Read([](const Shard* shard) { return shard->counts().copied_bytes; });
  }

  ClusterView view_;
  const std::string address_;
  SegmentHeap values_{1 << 20};
  LockedShard shard_;
  std::unique_ptr<LocalDoor> door_;
};

TEST_F(LocalDoorTest, StepsGoThrough) {
  const Worker worker = Connect();
  for (uint64_t step = 1; step <= 5; ++step) {
    ASSERT_NO_FATAL_FAILURE(Step(worker, step, static_cast<float>(step)));
    const auto pulled = Pull(worker, step);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(FloatsOf(*pulled), Floats(kElements, -static_cast<float>(step * (step + 1) / 2)));
    EXPECT_TRUE(pulled->slices[0].loan->Stands());
  }
  EXPECT_EQ(CopiedBytes(), 0u);  // each answer was read before the next verdict
}

TEST_F(LocalDoorTest, GradientsAreReadWhereTheyLieWhenTheStepIsDecided) {
  const Worker worker = Connect();
  std::fill_n(worker.gradient, kElements, 1.0f);
  ASSERT_TRUE(Push(worker, 1).ok());
  worker.gradient[17] = 5;  // without a word: nobody copied it
  ASSERT_TRUE(Complete(worker, 1).ok());
  EXPECT_EQ(FloatsOf(*Pull(worker, 1))[17], -5);
}

TEST_F(LocalDoorTest, AGradientThatIsWrittenBeforeTheVerdictEndsTheStepAndReachesNobody) {
  const Worker worker = Connect();
  ASSERT_TRUE(Push(worker, 1).ok());
  worker.arena->Recall();
  const auto decided = Complete(worker, 1);
  EXPECT_FALSE(decided.ok());
  const auto error = shard_.TakeNews().error;
  EXPECT_THAT(error, ::testing::HasSubstr("contributor 0 has written its gradient again"));
  EXPECT_FALSE(Pull(worker, 1).ok());
}

TEST_F(LocalDoorTest, AWorkerThatGivesAStepUpLeavesItsGradientToTheShard) {
  const Worker worker = Connect();
  std::fill_n(worker.gradient, kElements, 1.0f);
  ASSERT_TRUE(Push(worker, 1).ok());
  ASSERT_TRUE(worker.arena->LeaveToReaders().ok());
  std::fill_n(worker.gradient, kElements, 100.0f);  // other memory, at the same address
  ASSERT_TRUE(Complete(worker, 1).ok());
  EXPECT_EQ(FloatsOf(*Pull(worker, 1)), Floats(kElements, -1));
  // And goes on with that one, which the shard has not seen yet.
  ASSERT_NO_FATAL_FAILURE(Step(worker, 2, 2));
  EXPECT_EQ(FloatsOf(*Pull(worker, 2)), Floats(kElements, -3));
}

TEST_F(LocalDoorTest, AWorkerThatIsGoneLeavesItsGradientToTheShard) {
  Worker worker = Connect();
  std::fill_n(worker.gradient, kElements, 3.0f);
  ASSERT_TRUE(Push(worker, 1).ok());
  // Its complete has come; then it dies.
  CompleteRequest request;
  *request.mutable_header() = HeaderOf(view_, 1);
  request.set_step(1);
  request.mutable_share()->set_weight(1);
  worker = Worker();
  absl::Notification decided;
  shard_.Complete(request, {absl::Now(), Soon()},
                  [&](const absl::StatusOr<CompleteReply>&) { decided.Notify(); });
  decided.WaitForNotification();
  EXPECT_EQ(FloatsOf(*Pull(Connect(), 1)), Floats(kElements, -3));
}

TEST_F(LocalDoorTest, WhoReadsAVersionKeepsItWhileTheJobGoesOn) {
  const Worker slow = Connect();
  const Worker worker = Connect();
  ASSERT_NO_FATAL_FAILURE(Step(worker, 1, 1));
  const auto held = Pull(slow, 1);
  ASSERT_TRUE(held.ok());
  for (uint64_t step = 2; step <= 4; ++step) ASSERT_NO_FATAL_FAILURE(Step(worker, step, 1));
  EXPECT_EQ(FloatsOf(*held), Floats(kElements, -1));
  EXPECT_TRUE(held->slices[0].loan->Stands());
  EXPECT_EQ(CopiedBytes(), kElements * sizeof(float));  // once
}

// The pins go with the connection; who still reads finds out.
TEST_F(LocalDoorTest, WhatAReaderOfABrokenConnectionReadsIsWrittenAgainAndItFindsOut) {
  const Worker worker = Connect();
  Worker reader = Connect();
  auto held = Pull(reader, 0);
  ASSERT_TRUE(held.ok());
  reader.client.reset();
  const absl::Time deadline = Soon();
  uint64_t step = 1;
  while (held->slices[0].loan->Stands() && absl::Now() < deadline) {
    ASSERT_NO_FATAL_FAILURE(Step(worker, step++, 1));
  }
  EXPECT_FALSE(held->slices[0].loan->Stands());
}

TEST_F(LocalDoorTest, CallsEndWhenTheDoorCloses) {
  const Worker worker = Connect();
  PullRequest request;
  *request.mutable_header() = HeaderOf(view_, 1);
  request.set_version(7);  // parks
  request.add_slices(0);
  absl::Notification over;
  absl::Status status;
  worker.client->PullTensors(request, Soon(), [&](const absl::StatusOr<TensorPull>& pulled) {
    status = pulled.status();
    over.Notify();
  });
  door_.reset();
  ASSERT_TRUE(over.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(address_));
  // From now on calls go the other way.
  const absl::Time deadline = Soon();
  while (worker.client->ReadsLentMemory() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_FALSE(worker.client->ReadsLentMemory());
  EXPECT_FALSE(Push(worker, 1).ok());
}

TEST_F(LocalDoorTest, CallsEndAtTheirDeadlines) {
  const Worker worker = Connect();
  PullRequest request;
  *request.mutable_header() = HeaderOf(view_, 1);
  request.set_version(7);
  request.add_slices(0);
  const auto pulled = Wait<TensorPull>([&](Done<TensorPull> done) {
    worker.client->PullTensors(request, absl::Now() + absl::Milliseconds(100), std::move(done));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(pulled.status())) << pulled.status();
}

TEST_F(LocalDoorTest, WhatLiesElsewhereGoesTheOtherWay) {
  const Worker worker = Connect();
  const std::string elsewhere(kElements * sizeof(float), '\0');
  TensorPush push = MakePush(worker, 1);
  push.slices[0].bytes = std::string_view(elsewhere);
  const auto pushed = Wait<PushReply>([&](Done<PushReply> done) {
    worker.client->PushTensors(push, Soon(), std::move(done));
  });
  EXPECT_FALSE(pushed.ok());  // as NoRemote does
  push.slices[0] = MakePush(worker, 1).slices[0];
  push.slices[0].loan.reset();  // not lent
  EXPECT_FALSE(Wait<PushReply>([&](Done<PushReply> done) {
                 worker.client->PushTensors(push, Soon(), std::move(done));
               }).ok());
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
    auto socket = LocalSocket::Connect(LocalName(address_));
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (greet) {
      LocalRequest hello;
      hello.set_call(1);
      hello.mutable_hello()->set_address(address_);
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
    const Worker worker = Connect();
    Step(worker, 1, 1);
    EXPECT_EQ(FloatsOf(*Pull(worker, 1)), Floats(kElements, -1));  // nothing of theirs
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
  ExpectRefused([&](LocalRequest& r) { r.mutable_hello()->set_address(address_); });
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
