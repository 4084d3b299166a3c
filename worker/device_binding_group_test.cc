// A DeviceBinding in a node group that adds up its gradients among its GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/torch/testing/fake_session.h"
#include "common/clock/steady_now.h"
#include "common/tensor.h"
#include "worker/device/fake_device.h"
#include "worker/device/testing/fake_group.h"
#include "worker/device_binding.h"
#include "worker/device_binding_fixture.h"

namespace parley::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Pushes what has sums.
class Heard final : public Reducer::Listener {
 public:
  void OnReduced(size_t tensor, bool any) override {
    reduced[tensor] = any;
    if (any) {
      EXPECT_TRUE(session->Push(tensor).ok());
    }
  }
  void OnAllReduced() override { all = true; }
  void OnShared() override {}
  void OnBroken(const absl::Status& /*why*/) override {}
  FakeSession* session = nullptr;
  std::map<size_t, bool> reduced;
  bool all = false;
};

class NoValues final : public Reducer {
 public:
  absl::Status Form(Group /*group*/, Listener* /*listener*/) override { return absl::OkStatus(); }
  void Open(uint64_t /*step*/, double /*weight*/) override {}
  void Offer(size_t /*tensor*/) override {}
  void Close() override {}
  bool done() const override { return true; }
  std::string Missing() const override { return ""; }
  void Share(const Values& /*values*/, absl::Span<const std::byte> /*bytes*/) override {}
  void Withhold(const Values& /*values*/) override {}
  Taken Take(const Values& /*values*/, absl::Span<std::byte> /*to*/) override {
    return Taken::kWithheld;
  }
  void Watch(std::optional<uint32_t> /*rank*/) override {}
  void Abort() override {}
};

// One rank of a node group, with a session and a device of its own.
struct GroupRank {
  explicit GroupRank(uint32_t number, uint32_t ranks, const std::string& id, bool pins = true,
                     uint64_t small_values = 3)
      : rank(number),
        ranks(ranks),
        device({.for_tensors_of_the_cpu = true, .most_pins = pins ? SIZE_MAX : 0}),
        session(Plans(3), 0.1),
        group([=, this](const Reducer::Group& /*of*/, const std::function<bool()>& cancelled,
                        absl::Time deadline) -> absl::StatusOr<std::unique_ptr<DeviceGroup>> {
          ++joins;
          if (!join_status.ok()) return join_status;
          DeviceGroup::Options options;
          options.id = id;
          options.rank = number;
          options.ranks = ranks;
          options.cancelled = cancelled;
          auto made = FakeGroup::Join(device, options, deadline);
          if (!made.ok()) return made.status();
          joined = true;
          return *std::move(made);
        }) {
    sums = group.ReduceBy(std::make_unique<NoValues>());
    DeviceBinding::Options options;
    options.group_bucket_elements = 5;
    options.staged_values = 5;
    options.small_values = small_values;
    options.tiny_values = small_values == 3 ? 1 : 0;
    options.direct_values = 8;  // first.weight is large
    options.patience = absl::Seconds(30);
    options.group = &group;
    binding = *DeviceBinding::Make(ListerOf(network), device, options);
    EXPECT_TRUE(binding->Attach(session, 4, 0).ok());
    Form(3);
  }

  // From now on it is in this composition.
  void Form(uint64_t number) {
    // Tensor after tensor each other's; of first.weight one has four values, and one eight.
    Reducer::Group composition;
    composition.composition = number;
    composition.rank = rank;
    composition.members.resize(ranks);
    composition.stands = [this] { return stands.load(); };
    composition.ranges.resize(session.tensors().size());
    for (size_t i = 0; i < session.tensors().size(); ++i) {
      const TensorSpec& spec = session.tensors()[i];
      if (spec.buffer()) continue;
      size_t bytes = sizeof(float);
      for (const int64_t extent : spec.shape()) bytes *= static_cast<size_t>(extent);
      if (spec.name() == "first.weight") {
        composition.ranges[i] = {{0, 16, 1}, {16, bytes - 16, 0}};
      } else {
        composition.ranges[i] = {{0, bytes, static_cast<uint32_t>(i % ranks)}};
      }
    }
    EXPECT_TRUE(sums->Form(composition, &heard).ok());
  }

  // A step with these microbatches; what Complete says.
  absl::Status Step(const Microbatches& microbatches, double weight) {
    const auto plan = session.NextStep();
    heard = {};
    heard.session = &session;
    sums->Open(plan->step, weight);
    for (size_t i = 0; i < microbatches.size(); ++i) {
      const at::Tensor loss = network.Forward(microbatches[i]).square().mean();
      const absl::Status status = binding->Backward(loss, i + 1 == microbatches.size());
      if (!status.ok()) return status;
    }
    return binding->Complete(1).status();
  }

  const uint32_t rank;
  const uint32_t ranks;
  std::atomic<int> joins = 0;
  std::atomic<bool> joined = false;
  std::atomic<bool> stands = true;
  absl::Status join_status;
  FakeDevice device;
  TestNetwork network;
  FakeSession session;
  Heard heard;
  GpuGroup group;
  std::unique_ptr<Reducer> sums;
  std::unique_ptr<TrainingBinding> binding;
};

// The gradients of one network alone, by tensor.
std::vector<at::Tensor> GradientsOf(const Microbatches& microbatches) {
  TestNetwork network;
  for (const at::Tensor& x : microbatches) network.Forward(x).square().mean().backward();
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& named : network.Tensors()) gradients.push_back(named.tensor.grad());
  return gradients;
}

// pins: whether a device can copy to the session's own memory.
void ExpectEachRankHasItsSums(bool pins) {
  const std::vector<Microbatches> data = {{torch::randn({4, 3}), torch::randn({4, 3})},
                                          {torch::randn({2, 3})},
                                          {}};  // the last one has no samples
  const std::vector<double> weights = {0.75, 0.25, 0};
  const std::string id = FakeGroup::MakeId();
  std::vector<std::unique_ptr<GroupRank>> ranks;
  for (uint32_t i = 0; i < 3; ++i) ranks.push_back(std::make_unique<GroupRank>(i, 3, id, pins));
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status = ranks[i]->Step(data[i], weights[i]);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();

  const auto first = GradientsOf(data[0]);
  const auto second = GradientsOf(data[1]);
  for (const auto& rank : ranks) {
    EXPECT_THAT(rank->device.violations(), IsEmpty());
    EXPECT_TRUE(rank->heard.all);
    const Reducer::Group& group = *rank->group.sums().group();
    for (size_t i = 0; i < first.size(); ++i) {
      const std::string& name = rank->session.tensors()[i].name();
      if (group.ranges[i].empty()) continue;
      const bool any = first[i].defined() || second[i].defined();
      EXPECT_EQ(rank->heard.reduced.at(i), any) << name;
      if (!any) continue;
      at::Tensor sum = torch::zeros_like(first[i].defined() ? first[i] : second[i]);
      if (first[i].defined()) sum += first[i] * 0.75;
      if (second[i].defined()) sum += second[i] * 0.25;
      sum = sum.contiguous().flatten();
      const auto* const found = reinterpret_cast<const float*>(rank->session.gradient(i).data());
      for (const Reducer::Range& range : group.ranges[i]) {
        if (range.rank != rank->rank) continue;
        for (size_t k = range.begin / 4; k < (range.begin + range.bytes) / 4; ++k) {
          EXPECT_NEAR(found[k], sum[static_cast<int64_t>(k)].item<float>(), 1e-5)
              << name << ", value " << k;
        }
      }
    }
  }
}

TEST(GroupedDeviceBinding, EachRankHasTheSumsOfWhatItOwns) { ExpectEachRankHasItsSums(true); }

TEST(GroupedDeviceBinding, AlsoWhereTheSessionsMemoryCannotBePinned) {
  ExpectEachRankHasItsSums(false);
}

TEST(GroupedDeviceBinding, AStepThatLacksARankIsGivenUp) {
  const std::string id = FakeGroup::MakeId();
  GroupRank alone(0, 2, id);
  auto lost = std::make_unique<GroupRank>(1, 2, id);
  // So that they have found each other.
  std::thread other([&] {
    EXPECT_TRUE(lost->Step({torch::randn({4, 3})}, 0.5).ok());
    EXPECT_TRUE(lost->binding->Pull(/*ahead=*/false).ok());
    lost = nullptr;
  });
  EXPECT_TRUE(alone.Step({torch::randn({4, 3})}, 0.5).ok());
  EXPECT_TRUE(alone.binding->Pull(/*ahead=*/false).ok());
  other.join();
  // What this session knows of it: nothing. So what the group says is why.
  const absl::Status status = alone.Step({torch::randn({4, 3})}, 0.5);
  EXPECT_EQ(status, absl::AbortedError("rank 1 is lost"));
  EXPECT_FALSE(alone.heard.all);
  EXPECT_THAT(alone.device.violations(), IsEmpty());
}

// Runs it for each rank, on a thread of its own.
void OnAll(const std::vector<std::unique_ptr<GroupRank>>& ranks,
           const std::function<void(GroupRank&)>& run) {
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const auto& rank : ranks) threads.emplace_back([&run, &rank] { run(*rank); });
  for (std::thread& thread : threads) thread.join();
}

// What the sessions have pushed to whom: each value is as its owner's session has it. A rank
// applies the sums that it owns, so others have former values of those.
void ExpectValuesOfTheirOwners(const std::vector<std::unique_ptr<GroupRank>>& ranks) {
  for (const auto& rank : ranks) {
    const auto tensors = rank->network.Tensors();
    const Reducer::Group& group = *rank->group.sums().group();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto* const found = static_cast<const std::byte*>(tensors[i].tensor.const_data_ptr());
      for (const Reducer::Range& range : group.ranges[i]) {
        const auto owners = ranks[range.rank]->session.parameter(i);
        EXPECT_EQ(std::memcmp(found + range.begin, owners.data() + range.begin, range.bytes), 0)
            << tensors[i].name << " of rank " << range.rank << " on rank " << rank->rank;
      }
    }
  }
}

TEST(GroupedDeviceBinding, ValuesComeToTheirOwnersDeviceAndFromThereToTheOthers) {
  for (const bool shows : {false, true}) {
    const std::string id = FakeGroup::MakeId();
    std::vector<std::unique_ptr<GroupRank>> ranks;
    for (uint32_t i = 0; i < 3; ++i) {
      ranks.push_back(std::make_unique<GroupRank>(i, 3, id));
      ranks.back()->session.shows = shows;
    }
    size_t before = 0;
    OnAll(ranks, [&](GroupRank& rank) {
      // The last one has no samples.
      const Microbatches data =
          rank.rank == 2 ? Microbatches() : Microbatches{torch::randn({4, 3})};
      absl::Status status = rank.Step(data, 0.5);
      ASSERT_TRUE(status.ok()) << status;
    });
    for (const auto& rank : ranks) before += rank->device.copied_to_device();
    OnAll(ranks, [&](GroupRank& rank) {
      ASSERT_TRUE(rank.binding->Pull(/*ahead=*/true).ok());
      const Microbatches data =
          rank.rank == 2 ? Microbatches() : Microbatches{torch::randn({4, 3})};
      absl::Status status = rank.Step(data, 0.5);
      ASSERT_TRUE(status.ok()) << status;
    });
    ExpectValuesOfTheirOwners(ranks);
    size_t copied = 0;
    size_t values = 0;
    size_t buffers = 0;
    for (const auto& rank : ranks) {
      EXPECT_THAT(rank->device.violations(), IsEmpty());
      copied += rank->device.copied_to_device();
      for (const TensorSpec& spec : rank->session.tensors()) {
        (spec.buffer() ? buffers : values) += ByteCount(spec);
      }
    }
    EXPECT_GE(copied - before, values / 3);
    EXPECT_LE(copied - before, values / 3 + buffers) << "each value once for all of them";
  }
}

// All that forward uses is as the rank's own session has it.
void ExpectOwnValues(GroupRank& rank) {
  const auto tensors = rank.network.Tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].buffer || tensors[i].name == "unused") continue;
    const auto own = rank.session.parameter(i);
    EXPECT_EQ(std::memcmp(tensors[i].tensor.const_data_ptr(), own.data(), own.size()), 0)
        << tensors[i].name;
  }
}

TEST(GroupedDeviceBinding, AnotherCompositionGetsItsFirstValuesFromTheHost) {
  const std::string id = FakeGroup::MakeId();
  std::vector<std::unique_ptr<GroupRank>> ranks;
  for (uint32_t i = 0; i < 2; ++i) ranks.push_back(std::make_unique<GroupRank>(i, 2, id));
  OnAll(ranks, [&](GroupRank& rank) {
    ASSERT_TRUE(rank.Step({torch::randn({4, 3})}, 0.5).ok());
    rank.Form(4);
    ASSERT_TRUE(rank.binding->Pull(/*ahead=*/true).ok());
    rank.network.Forward(torch::randn({4, 3}));
  });
  for (const auto& rank : ranks) {
    EXPECT_THAT(rank->device.violations(), IsEmpty());
    ExpectOwnValues(*rank);
  }
}

// A step that has lacked a rank has left nothing: what is pulled then comes from the host.
void ExpectItGoesOnAlone(GroupRank& alone) {
  EXPECT_FALSE(alone.heard.all);
  EXPECT_THAT(alone.device.violations(), IsEmpty());
  for (const NamedTensor& named : alone.network.Tensors()) {
    EXPECT_FALSE(named.tensor.grad().defined()) << named.name << " has one of the lost step";
  }
  ASSERT_TRUE(alone.binding->Pull(/*ahead=*/true).ok());
  alone.network.Forward(torch::randn({4, 3}));
  ExpectOwnValues(alone);
  alone.binding = nullptr;
  EXPECT_EQ(alone.joins, 1) << "nobody is looked for in a step that is lost";
}

TEST(GroupedDeviceBinding, AStepWhoseValuesLackARankIsGivenUp) {
  // In many units; and in two, of which the second one is not given any more.
  for (const uint64_t small_values : {3, 100}) {
    const std::string id = FakeGroup::MakeId();
    std::vector<std::unique_ptr<GroupRank>> ranks;
    for (uint32_t i = 0; i < 2; ++i) {
      ranks.push_back(std::make_unique<GroupRank>(i, 2, id, true, small_values));
    }
    OnAll(ranks, [&](GroupRank& rank) {
      ASSERT_TRUE(rank.Step({torch::randn({4, 3})}, 0.5).ok());
    });
    ranks[1] = nullptr;
    GroupRank& alone = *ranks[0];
    ASSERT_TRUE(alone.binding->Pull(/*ahead=*/true).ok());
    const absl::Status status = alone.Step({torch::randn({4, 3})}, 0.5);
    EXPECT_EQ(status, absl::AbortedError("rank 1 is lost"));
    ExpectItGoesOnAlone(alone);
  }
}

TEST(GroupedDeviceBinding, AStepThatLacksARankInItsSecondMicrobatchIsGivenUp) {
  const std::string id = FakeGroup::MakeId();
  std::vector<std::unique_ptr<GroupRank>> ranks;
  for (uint32_t i = 0; i < 2; ++i) ranks.push_back(std::make_unique<GroupRank>(i, 2, id));
  OnAll(ranks, [&](GroupRank& rank) { ASSERT_TRUE(rank.Step({torch::randn({4, 3})}, 0.5).ok()); });
  std::thread other([&] {
    EXPECT_TRUE(ranks[1]->binding->Pull(/*ahead=*/true).ok());
    ranks[1]->network.Forward(torch::randn({2, 3}));
    ranks[1] = nullptr;
  });
  // What so few samples do not use, the second one has to wait for.
  GroupRank& alone = *ranks[0];
  ASSERT_TRUE(alone.binding->Pull(/*ahead=*/true).ok());
  const absl::Status status = alone.Step({torch::randn({2, 3}), torch::randn({4, 3})}, 0.5);
  other.join();
  EXPECT_EQ(status, absl::AbortedError("rank 1 is lost"));
  ExpectItGoesOnAlone(alone);
}

// Forward waits for the device, and that for the other rank: nobody asks the session then.
TEST(GroupedDeviceBinding, AForwardThatWaitsForARankThatDoesNotComeEndsWithTheComposition) {
  const std::string id = FakeGroup::MakeId();
  std::vector<std::unique_ptr<GroupRank>> ranks;
  for (uint32_t i = 0; i < 2; ++i) ranks.push_back(std::make_unique<GroupRank>(i, 2, id));
  OnAll(ranks, [&](GroupRank& rank) { ASSERT_TRUE(rank.Step({torch::randn({4, 3})}, 0.5).ok()); });
  GroupRank& alone = *ranks[0];
  ASSERT_TRUE(alone.binding->Pull(/*ahead=*/true).ok());
  std::thread view([&] {
    absl::SleepFor(absl::Milliseconds(50));
    alone.stands = false;
  });
  const absl::Status status = alone.Step({torch::randn({4, 3})}, 0.5);
  view.join();
  EXPECT_EQ(status, absl::AbortedError("the fake group was given up"));
  EXPECT_THAT(alone.device.violations(), IsEmpty());
  alone.stands = true;
  ASSERT_TRUE(alone.binding->Pull(/*ahead=*/true).ok());
  alone.network.Forward(torch::randn({4, 3}));
  ExpectOwnValues(alone);
}

// It is heard of before the sums are waited for: they are not, and the reason stays.
TEST(GroupedDeviceBinding, SumsOfAStepThatIsLostAreNotWaitedFor) {
  const std::string id = FakeGroup::MakeId();
  GroupRank alone(0, 2, id);
  auto lost = std::make_unique<GroupRank>(1, 2, id);
  const auto backward = [](GroupRank& rank, bool last) {
    const auto plan = rank.session.NextStep();
    rank.heard = {};
    rank.heard.session = &rank.session;
    rank.sums->Open(plan->step, 0.5);
    const at::Tensor loss = rank.network.Forward(torch::randn({4, 3})).square().mean();
    EXPECT_TRUE(rank.binding->Backward(loss, last).ok());
  };
  const auto until = [](const std::function<bool()>& done) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (!done() && SteadyNow() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(done());
  };
  backward(alone, true);
  EXPECT_FALSE(alone.binding->StepIsLost());
  // It joins the group, and sends nothing.
  backward(*lost, false);
  until([&] { return lost->joined.load(); });
  lost = nullptr;
  until([&] { return alone.binding->StepIsLost(); });
  EXPECT_TRUE(alone.binding->Settle().ok());
  EXPECT_EQ(alone.binding->Complete(1).status(), absl::AbortedError("rank 1 is lost"));
  EXPECT_FALSE(alone.binding->StepIsLost());
}

TEST(GroupedDeviceBinding, BackwardWaitsForNoOtherRank) {
  const std::string id = FakeGroup::MakeId();
  GroupRank first(0, 2, id);
  GroupRank second(1, 2, id);
  const auto plan = first.session.NextStep();
  first.heard.session = &first.session;
  first.sums->Open(plan->step, 0.5);
  const at::Tensor loss = first.network.Forward(torch::randn({4, 3})).square().mean();
  ASSERT_TRUE(first.binding->Backward(loss, /*last=*/true).ok());
  EXPECT_FALSE(first.heard.all);
  std::thread thread([&] { EXPECT_TRUE(second.Step({torch::randn({4, 3})}, 0.5).ok()); });
  EXPECT_TRUE(first.binding->Complete(1).ok());
  thread.join();
  EXPECT_TRUE(first.heard.all);
}

TEST(GroupedDeviceBinding, AFaultOfTheOwnDeviceIsNoRanksLoss) {
  const std::string id = FakeGroup::MakeId();
  GroupRank faulty(0, 2, id);
  GroupRank other(1, 2, id);
  faulty.device.Break();
  std::thread thread([&] { other.Step({torch::randn({4, 3})}, 0.5).IgnoreError(); });
  const absl::Status status = faulty.Step({torch::randn({4, 3})}, 0.5);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("fake:0: an illegal memory access"));
  faulty.binding = nullptr;  // its process ends
  thread.join();
}

TEST(GroupedDeviceBinding, AnErrorThatIsNoRanksLossIsSaidAtOnce) {
  GroupRank rank(0, 2, FakeGroup::MakeId());
  rank.join_status = absl::InternalError("NCCL says invalid usage");
  EXPECT_EQ(rank.Step({torch::randn({4, 3})}, 0.5), rank.join_status);
}

}  // namespace
}  // namespace parley::testing
