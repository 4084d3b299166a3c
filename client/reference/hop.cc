#include "client/reference/hop.h"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "client/runtime.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr size_t kLeastRounds = 20;
constexpr size_t kWarmRounds = 5;  // connections and buffers are new

// Gives back as much as comes, until an empty tensor comes or nothing does.
void Echo(HopEnd& end) {
  std::shared_ptr<const std::vector<char>> bytes;
  while (true) {
    const absl::StatusOr<ValuePtr> came = end.Receive();
    if (!came.ok() || (*came)->tensors.size() != 1) return;
    const size_t size = (*came)->tensors[0].bytes.size();
    if (size == 0) return;
    if (bytes == nullptr || bytes->size() != size) {
      bytes = std::make_shared<const std::vector<char>>(size);
    }
    if (!end.Send(bytes).ok()) return;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HopEnd>> HopEnd::Start(Way way, SharedCredentials credentials) {
  std::unique_ptr<HopEnd> end = absl::WrapUnique(new HopEnd());
  end->queue_ = std::make_shared<AnswerQueue>(RealRuntime(), &end->nobody_);
  RemoteAgent::Options options;
  options.job = "hop";
  options.listen = "127.0.0.1:0";
  options.at_once = {"deliver"};
  options.shares_memory = way == Way::kSharedMemory;
  options.direct = way != Way::kGrpc;
  options.credentials = std::move(credentials);
  const RemoteFunction deliver =
      [end = end.get()](const RemoteCall& call) -> absl::StatusOr<RemoteValue> {
    if (call.arguments.size() != 1) return absl::InvalidArgumentError("one tensor at a time");
    absl::StatusOr<ValuePtr> value = call.arguments[0].Fetch(SteadyNow() + kPatience);
    if (!value.ok()) return value.status();
    end->queue_->Post([end, came = *std::move(value)] { end->came_ = came; });
    return RemoteValue();
  };
  absl::StatusOr<std::unique_ptr<RemoteAgent>> agent =
      RemoteAgent::Start(options, {{"deliver", deliver}});
  if (!agent.ok()) return agent.status();
  end->agent_ = *std::move(agent);
  return end;
}

absl::Status HopEnd::Connect(const std::string& peer) {
  peer_ = peer;
  return agent_->Connect(peer, SteadyNow() + kPatience);
}

absl::Status HopEnd::Send(const std::shared_ptr<const std::vector<char>>& bytes) {
  ValueTensor tensor;
  tensor.dtype = U8;
  tensor.shape = {static_cast<int64_t>(bytes->size())};
  tensor.bytes = std::string_view(bytes->data(), bytes->size());
  tensor.owner = bytes;
  RemoteValue value;
  value.tensors.push_back(std::move(tensor));
  return agent_->Call(peer_, "deliver", {agent_->Make(std::move(value))}).status();
}

absl::StatusOr<ValuePtr> HopEnd::Receive() {
  absl::Status came = queue_->RunUntil([this] { return came_ != nullptr; }, SteadyNow() + kPatience,
                                       [] {}, absl::Seconds(1));
  if (!came.ok()) return came;
  return std::exchange(came_, nullptr);
}

absl::StatusOr<absl::Duration> MeasureHop(size_t bytes, absl::Duration budget,
                                          const SharedCredentials& credentials) {
  absl::StatusOr<std::unique_ptr<HopEnd>> near = HopEnd::Start(HopEnd::Way::kDirect, credentials);
  if (!near.ok()) return near.status();
  absl::StatusOr<std::unique_ptr<HopEnd>> far = HopEnd::Start(HopEnd::Way::kDirect, credentials);
  if (!far.ok()) return far.status();
  if (absl::Status there = (*near)->Connect((*far)->address()); !there.ok()) return there;
  if (absl::Status back = (*far)->Connect((*near)->address()); !back.ok()) return back;

  std::thread echo([&] { Echo(**far); });
  const absl::Cleanup over = [&] {
    // Where this fails, too, it waits for its patience.
    (void)(*near)->Send(std::make_shared<const std::vector<char>>());
    echo.join();
  };
  const auto tensor = std::make_shared<const std::vector<char>>(std::max(bytes, size_t{1}));
  std::vector<absl::Duration> rounds;
  const absl::Time end = SteadyNow() + budget;
  for (size_t round = 0; round < kWarmRounds + kLeastRounds || SteadyNow() < end; ++round) {
    const absl::Time begin = SteadyNow();
    if (absl::Status sent = (*near)->Send(tensor); !sent.ok()) return sent;
    const absl::StatusOr<ValuePtr> came = (*near)->Receive();
    if (!came.ok()) return came.status();
    if (round >= kWarmRounds) rounds.push_back(SteadyNow() - begin);
  }
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
  std::nth_element(rounds.begin(), middle, rounds.end());
  return *middle / 2;
}

}  // namespace parley
