#ifndef PARLEY_SERVER_PARAMETER_SHARD_LOCAL_DOOR_FIXTURE_H_
#define PARLEY_SERVER_PARAMETER_SHARD_LOCAL_DOOR_FIXTURE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/local_connector.h"
#include "client/tensor_arena.h"
#include "client/testing/refusing_peers.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/local_door.h"
#include "common/worker_threads.h"
#include "server/parameter_shard/local_guest.h"
#include "server/parameter_shard/shard_fixture.h"

namespace parley::testing {

// One shard with one tensor of so many zeros, in slices of 1 MiB, and one worker.
inline constexpr size_t kLocalElements = 5000;
inline constexpr size_t kLocalSliceElements = 4 * kBlockElements;
inline ClusterView LocalView(size_t elements = kLocalElements) {
  return MakeView(
      {.tensors = {{"w", elements}}, .workers = 1, .slice_elements = kLocalSliceElements});
}

// A shard and its door; the name of the door is free. Large steps it carries out on a thread of
// their own, as a shard process does.
class LocalShard {
 public:
  explicit LocalShard(std::string address, size_t elements = kLocalElements)
      : address_(std::move(address)),
        shard_(SummingJob(), {}, {nullptr, &values_, [this](std::function<void()> task) {
                                    later_.Run(std::move(task));
                                  }}) {
    auto door = LocalGuest::OpenDoor({address_, &shard_, &values_, nullptr});
    status_ = door.status();
    if (door.ok()) door_ = *std::move(door);
    shard_.Start(0);
    const ClusterView view = LocalView(elements);
    status_.Update(shard_.SetView(view, SteadyNow()));
    for (const Slice& slice : view.slices()) {
      const std::string zeros = BytesOf(Floats(slice.end() - slice.begin()));
      status_.Update(shard_.StartSlice(slice.id(), {.values = zeros, .state = {}}, SteadyNow()));
    }
  }

  const absl::Status& status() const { return status_; }
  const std::string& address() const { return address_; }
  LockedShard& core() { return shard_; }
  void CloseDoor() { door_.reset(); }

 private:
  const std::string address_;
  SegmentHeap values_{256 << 20};
  WorkerThreads later_{1};
  LockedShard shard_;
  std::unique_ptr<LocalDoor> door_;
  absl::Status status_;
};

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

// The worker, with calls that wait.
class LocalWorker {
 public:
  explicit LocalWorker(size_t elements = kLocalElements) : view_(LocalView(elements)) {
    const std::vector<TensorSpec> tensors(view_.tensors().begin(), view_.tensors().end());
    arena_.emplace(tensors, connector_->memory());
  }

  // From now on it is this member of this view.
  void Become(const ClusterView& view, uint64_t member) {
    view_ = view;
    member_ = member;
  }

  // Completes ask for verdicts as soon as there are any: before it writes a gradient again, it has
  // to pull.
  void AskAtOnce() { at_once_ = true; }

  // False where the shard does not let it in.
  bool Connect(const std::string& address) {
    client_ = connector_->ConnectShard(address);
    for (const absl::Time deadline = Soon(); SteadyNow() < deadline;) {
      if (client_->ReadsLentMemory()) return true;
      absl::SleepFor(absl::Microseconds(200));
    }
    return false;
  }
  void Disconnect() { client_.reset(); }

  ShardClient& client() const { return *client_; }
  TensorArena& arena() { return *arena_; }
  float* gradient() { return reinterpret_cast<float*>(arena_->tensor(0).data()); }
  void Fill(float value) {
    std::fill_n(gradient(), arena_->tensor(0).size() / sizeof(float), value);
  }

  TensorPush MakePush(uint64_t step, uint32_t attempt = 0) const {
    TensorPush push;
    *push.head.mutable_header() = HeaderOf(view_, member_);
    push.head.set_step(step);
    push.head.set_attempt(attempt);
    for (const Slice& slice : view_.slices()) {
      const TensorBytes::Piece bytes = arena_->tensor(0).subspan(
          slice.begin() * sizeof(float), (slice.end() - slice.begin()) * sizeof(float));
      push.slices.push_back({slice.id(), F32, bytes, arena_->owner(), arena_->Lend(0)});
    }
    return push;
  }
  absl::StatusOr<PushReply> Push(const TensorPush& push) const {
    return Wait<PushReply>(
        [&](Done<PushReply> done) { client_->PushTensors(push, Soon(), std::move(done)); });
  }
  absl::StatusOr<PushReply> Push(uint64_t step, uint32_t attempt = 0) const {
    return Push(MakePush(step, attempt));
  }
  absl::StatusOr<CompleteReply> Complete(uint64_t step, uint32_t attempt = 0) const {
    CompleteRequest request;
    *request.mutable_header() = HeaderOf(view_, member_);
    request.set_step(step);
    request.set_attempt(attempt);
    request.set_at_once(at_once_);
    request.mutable_share()->set_weight(1);
    return Wait<CompleteReply>(
        [&](Done<CompleteReply> done) { client_->Complete(request, Soon(), std::move(done)); });
  }
  absl::StatusOr<TensorPull> Pull(uint64_t version, absl::Time deadline = Soon()) const {
    PullRequest request;
    *request.mutable_header() = HeaderOf(view_, member_);
    request.set_version(version);
    for (const Slice& slice : view_.slices()) request.add_slices(slice.id());
    return Wait<TensorPull>(
        [&](Done<TensorPull> done) { client_->PullTensors(request, deadline, std::move(done)); });
  }
  static Floats FloatsOf(const TensorPull& pulled) {
    Floats floats;
    for (const TensorSlice& slice : pulled.slices) {
      const size_t begin = floats.size();
      floats.resize(begin + slice.bytes.size() / sizeof(float));
      slice.bytes.CopyTo(reinterpret_cast<std::byte*>(floats.data() + begin));
    }
    return floats;
  }
  // A whole step with this gradient.
  absl::Status Step(uint64_t step, float value, uint32_t attempt = 0) {
    arena_->Recall();
    Fill(value);
    if (auto pushed = Push(step, attempt); !pushed.ok()) return pushed.status();
    auto decided = Complete(step, attempt);
    if (!decided.ok()) return decided.status();
    if (decided->verdict().outcome() == Verdict::APPLY) return absl::OkStatus();
    return absl::InternalError(decided->verdict().ShortDebugString());
  }

  static absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

 private:
  template <class Reply>
  static absl::StatusOr<Reply> Wait(const std::function<void(Done<Reply>)>& call) {
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

  ClusterView view_;
  uint64_t member_ = 1;
  bool at_once_ = false;
  const std::unique_ptr<Connector> connector_ = MakeLocalConnector(std::make_unique<NoRemote>());
  std::shared_ptr<ShardClient> client_;
  std::optional<TensorArena> arena_;
};

}  // namespace parley::testing

#endif  // PARLEY_SERVER_PARAMETER_SHARD_LOCAL_DOOR_FIXTURE_H_
