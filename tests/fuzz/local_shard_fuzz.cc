// A worker whose shard on the same machine is hostile, or dies: the worker's own link, puller and
// arena. Every call ends once, with a status; the link ends with its peer; and what it was shown,
// the worker can read.
//
// An input begins with a byte of flags (below). Then come turns, each of a length (two bytes), a
// byte that says which files come along, one that says what the worker (or the shard) does first
// (kTurns), and a message of that length from the shard. At last one of the two hangs up.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/answer_queue.h"
#include "client/connector.h"
#include "client/local_link.h"
#include "client/parameter_arena.h"
#include "client/parameter_puller.h"
#include "client/runtime.h"
#include "client/service_calls.h"
#include "client/slice_layout.h"
#include "client/tensor_arena.h"
#include "client/testing/quiet_membership.h"
#include "client/testing/refusing_peers.h"
#include "client/testing/scripted_door.h"
#include "client/timers.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/memory_segment.h"
#include "common/shared_memory/segment_heap.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/shown_files.h"

namespace parley {
namespace {

// Flags.
constexpr uint8_t kDoesNotGreet = 1;   // the first message of an input may
constexpr uint8_t kNobodyVisits = 2;   // the link's own thread receives
constexpr uint8_t kReadsAll = 4;       // the shard, before it goes; else it resets the connection
constexpr uint8_t kWorkerHangsUp = 8;  // before the shard does

enum Turn : uint8_t {
  kNothing,
  kPullAhead,
  kPull,
  kPullLasting,
  kPullNewest,
  kPush,
  kComplete,
  kDetach,
  kShardWrites,  // what it has shown
  kTooLarge,     // a message
  kShardReads,   // a request
  kSaysNothing,  // a message of no bytes
  kTurns,
};

// Slices 0 and 1, of one tensor, can be shown where they lie; slice 2 is copied. Slice 1 ends
// within a page.
constexpr size_t kShownElements = ParameterArena::kShown / sizeof(float);
constexpr int64_t kTinyElements = 3;

std::vector<TensorSpec> MakeTensors() {
  std::vector<TensorSpec> tensors(2);
  tensors[0].set_name("w");
  tensors[0].add_shape(2 * static_cast<int64_t>(kShownElements) + 1);
  tensors[1].set_name("b");
  tensors[1].add_shape(kTinyElements);
  for (TensorSpec& tensor : tensors) tensor.set_dtype(F32);
  return tensors;
}

ClusterView MakeView(const std::vector<TensorSpec>& tensors, const std::string& address) {
  ClusterView view;
  view.mutable_tensors()->Assign(tensors.begin(), tensors.end());
  Member& shard = *view.add_members();
  shard.set_role(SHARD);
  shard.set_address(address);
  const auto add = [&](uint32_t tensor, uint64_t begin, uint64_t end) {
    Slice& slice = *view.add_slices();
    slice.set_id(static_cast<uint32_t>(view.slices_size()) - 1);
    slice.set_tensor(tensor);
    slice.set_begin(begin);
    slice.set_end(end);
  };
  add(0, 0, kShownElements);
  add(0, kShownElements, 2 * kShownElements + 1);
  add(1, 0, kTinyElements);
  return view;
}

// What lives for as long as the process.
struct World {
  ScriptedDoor door;
  // The odd one has all bytes of slice 1, but not the last page of them.
  ShownFiles files{2 * ParameterArena::kShown + 8192, 2 * ParameterArena::kShown + 100};
  std::vector<TensorSpec> tensors = MakeTensors();
  SliceLayout layout = *SliceLayout::Make(MakeView(tensors, door.address()), tensors, 0, 9);
  SegmentHeap heap{0};
  TensorArena gradients{tensors, &heap};
};

// Nothing is repeated.
class NoTimers final : public Timers {
 public:
  absl::Time Now() const override { return SteadyNow(); }
  void RunAt(absl::Time, std::function<void()>) override {}
  void Stop() override {}
};

bool IsWithin(const void* begin, size_t bytes, const MemorySegment& segment) {
  const auto* const first = static_cast<const std::byte*>(begin);
  return first >= segment.data() && first + bytes <= segment.data() + segment.bytes();
}

// What the link passes on lies in what the shard has shown.
void CheckPlaces(const TensorPull& pulled) {
  for (const TensorSlice& slice : pulled.slices) {
    for (const TensorBytes::Piece& piece : slice.bytes.pieces()) {
      Require(IsWithin(piece.data(), piece.size(), *slice.segment));
    }
    Require(IsWithin(slice.loan->count, sizeof(uint64_t), *slice.segment));
  }
}

// Calls that have begun and not ended.
class OpenCalls {
 public:
  template <class Reply>
  Done<Reply> Begin(Done<Reply> done) {
    ++open_;
    return [this, ended = std::make_shared<std::atomic<bool>>(false),
            done = std::move(done)](absl::StatusOr<Reply> reply) {
      Require(!ended->exchange(true));
      done(std::move(reply));
      --open_;
    };
  }
  int open() const { return open_; }

 private:
  std::atomic<int> open_ = 0;
};

// A shard that is the link, and nothing where it is not up.
class LinkShard final : public RefusingShard {
 public:
  LinkShard(LocalLink* link, OpenCalls* calls) : link_(link), calls_(calls) {}

  bool ReadsLentMemory() const override { return true; }
  bool KeepsOrder() const override { return true; }
  void PullTensors(const PullRequest& request, absl::Time deadline,
                   Done<TensorPull> done) override {
    Done<TensorPull> counted =
        calls_->Begin<TensorPull>([done = std::move(done)](absl::StatusOr<TensorPull> pulled) {
          if (pulled.ok()) CheckPlaces(*pulled);
          done(std::move(pulled));
        });
    if (!link_->Pull(request, deadline, counted)) counted(absl::UnavailableError("no link"));
  }
  void PushTensors(const TensorPush& push, absl::Time deadline, Done<PushReply> done) override {
    Done<PushReply> counted = calls_->Begin(std::move(done));
    if (!link_->Push(push, deadline, counted)) counted(absl::UnavailableError("no link"));
  }
  void Complete(const CompleteRequest& request, absl::Time deadline,
                Done<CompleteReply> done) override {
    Done<CompleteReply> counted = calls_->Begin(std::move(done));
    if (!link_->Complete(request, deadline, counted)) counted(absl::UnavailableError("no link"));
  }

 private:
  LocalLink* const link_;
  OpenCalls* const calls_;
};

class LinkConnector final : public Connector {
 public:
  explicit LinkConnector(std::shared_ptr<ShardClient> shard) : shard_(std::move(shard)) {}
  std::shared_ptr<CoordinatorClient> ConnectCoordinator(const std::string&) override {
    return nullptr;
  }
  std::shared_ptr<ShardClient> ConnectShard(const std::string&) override { return shard_; }

 private:
  const std::shared_ptr<ShardClient> shard_;
};

class Worker {
 public:
  Worker(World& world, uint8_t flags)
      : world_(world), flags_(flags), link_(*LocalLink::Open(world.door.address(), &world.heap)) {
    world_.door.Accept();
    service_calls_.Connect(world_.layout.shard_addresses(), 1);
  }

  void Take(Turn turn) {
    switch (turn) {
      case kPullAhead:
        return puller_.Ask(1);
      case kPull:
        return puller_.Begin({.version = 1});
      case kPullLasting:
        return puller_.Begin({.version = 1, .lasting = true});
      case kPullNewest:
        return puller_.Begin({.version = 1, .newest = true, .lasting = true});
      case kPush: {
        auto push = std::make_shared<TensorPush>();
        TensorSlice slice;
        slice.slice = 2;
        slice.dtype = F32;
        slice.bytes = TensorBytes::Piece(world_.gradients.tensor(1));
        slice.owner = world_.gradients.owner();
        slice.loan = world_.gradients.Lend(1);
        push->slices.push_back(std::move(slice));
        return service_calls_.Push(0, std::move(push), [](const absl::StatusOr<PushReply>&) {});
      }
      case kComplete:
        return service_calls_.Complete(0, std::make_shared<CompleteRequest>(),
                                       [](const absl::StatusOr<CompleteReply>&) {});
      case kDetach:
        Require(parameters_->Detach().ok());
        return;
      case kShardWrites:
        world_.files.large().data()[0] ^= std::byte{1};
        return;
      case kTooLarge:
        return world_.door.SayTooMuch();
      case kShardReads:
        world_.door.Next(absl::InfinitePast());
        return;
      case kSaysNothing:
        world_.door.Say("");
        return;
      case kNothing:
      case kTurns:
        return;
    }
  }

  // The shard has let it in, or it has ended.
  void AwaitReady() {
    while (!link_->ready() && !link_->ended()) {
      if ((flags_ & kNobodyVisits) != 0 || !link_->Visit()) std::this_thread::yield();
    }
  }

  // Takes what has come.
  void Look() {
    if ((flags_ & kNobodyVisits) == 0) {
      while (link_->Visit()) {
      }
    }
    (void)queue_->RunUntil([] { return false; }, absl::InfinitePast(), [] {}, absl::ZeroDuration());
  }

  void End() {
    if ((flags_ & kWorkerHangsUp) != 0) link_->Close();
    if ((flags_ & kReadsAll) != 0) {
      while (world_.door.Next(absl::InfinitePast()).has_value()) {
      }
    }
    world_.door.HangUp();
    link_->Leave();
    // As a connector does with a link whose shard has gone: nothing but that ends it.
    for (const absl::Time deadline = SteadyNow() + absl::Seconds(5); !link_->ended();) {
      Require(SteadyNow() < deadline);
      absl::SleepFor(absl::Microseconds(20));
    }
    link_->Join();
    Require(!link_->ready());
    Require(calls_.open() == 0);
    Take(kComplete);
    Require(calls_.open() == 0);
    Look();
    Read();
    (void)parameters_->Stands();
    Require(parameters_->Detach().ok());
    Read();
  }

 private:
  void Read() const {
    for (size_t i = 0; i < world_.tensors.size(); ++i) Touch(parameters_->tensor(i));
  }

  World& world_;
  const uint8_t flags_;
  OpenCalls calls_;
  const std::shared_ptr<LocalLink> link_;
  LinkConnector connector_{std::make_shared<LinkShard>(link_.get(), &calls_)};
  QuietMembership membership_;
  const std::shared_ptr<AnswerQueue> queue_ = std::make_shared<AnswerQueue>(RealRuntime());
  ServiceCalls service_calls_{
      {absl::Seconds(20), absl::Seconds(2)}, connector_, membership_, queue_,
      std::make_shared<NoTimers>(),          3};
  const std::unique_ptr<ParameterArena> parameters_ = *ParameterArena::Make(world_.tensors);
  ParameterPuller puller_{world_.tensors, world_.layout, *parameters_, service_calls_};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static World& world = *new World;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto flags = static_cast<uint8_t>(input[0]);
  world.files.large().data()[0] = std::byte{0};
  Worker worker(world, flags);
  if ((flags & kDoesNotGreet) == 0) {
    LocalReply hello;
    hello.set_call(1);
    Require(world.door.Say(hello));
    // Nothing else is done before it is heard.
    worker.AwaitReady();
  }
  int turns = 0;
  for (size_t at = 1; at + 4 <= input.size() && turns < 20; ++turns) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(input[at + i]); };
    const size_t bytes = byte(0) + 256 * byte(1);
    const std::string message = input.substr(at + 4, bytes);
    worker.Take(static_cast<Turn>(byte(3) % kTurns));
    const std::vector<int> files = world.files.Some(byte(2) / 4, byte(2) % 4);
    at += 4 + message.size();
    if (!message.empty() && !world.door.Say(message, files)) break;
    worker.Look();
  }
  worker.End();
  return 0;
}

}  // namespace parley
