#include "worker/device_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/torch/testing/fake_session.h"
#include "common/nonzero_blocks.h"
#include "common/tensor.h"
#include "worker/device/fake_device.h"
#include "worker/device_binding_fixture.h"
#include "worker/host_binding.h"

namespace parley::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of the parameters of four values and more, as a FakeSession shows them: two values each.
constexpr size_t kParts = (12 + 4 + 4 + 4 + 4) / 2;

class DeviceBindingTest : public ::testing::Test {
 protected:
  uint64_t direct_values_ = 4;

  absl::StatusOr<std::unique_ptr<TrainingBinding>> Bind(const Network& network) {
    DeviceBinding::Options options;
    options.bucket_elements = 5;  // first.weight has 12
    options.small_values = 3;
    options.tiny_values = 1;
    options.staged_values = 5;
    options.direct_gradient = 4;
    options.direct_piece = 3;
    options.direct_values = direct_values_;
    options.patience = absl::Seconds(10);
    return DeviceBinding::Make(ListerOf(network), device_, options);
  }

  // Both ways, and compares. loss_scale: on the device.
  void TrainBothWays(const Microbatches& microbatches, double loss_scale = 1) {
    direct_values_ = 8;  // first.weight; first.bias and others are small, rare is tiny
    TestNetwork on_host;
    FakeSession host_session(Plans(4), 0.1);
    Train(**HostBinding::Make(ListerOf(on_host)), on_host, host_session, microbatches);

    FakeSession session(Plans(4), 0.1);
    {
      auto binding = Bind(network_);
      ASSERT_TRUE(binding.ok()) << binding.status();
      Train(**binding, network_, session, microbatches, loss_scale);
    }
    EXPECT_THAT(device_.violations(), IsEmpty());
    EXPECT_EQ(AllParameters(session), AllParameters(host_session)) << "the same bits";
    std::vector<std::string> names = session.PushedNames();
    std::vector<std::string> expected = host_session.PushedNames();
    std::sort(names.begin(), names.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_THAT(names, ElementsAreArray(expected));
    // The network has them too, in memory of its own.
    const auto listed = network_.Tensors();
    const auto listed_host = on_host.Tensors();
    for (size_t i = 0; i < listed.size(); ++i) {
      EXPECT_TRUE(at::equal(listed[i].tensor, listed_host[i].tensor)) << listed[i].name;
      EXPECT_NE(listed[i].tensor.const_data_ptr(), session.parameter(i).data());
    }
  }

  FakeDevice device_{{.for_tensors_of_the_cpu = true}};
  TestNetwork network_;
};

TEST_F(DeviceBindingTest, TrainsToTheSameBitsAsOnTheHost) { TrainBothWays({torch::randn({4, 3})}); }

TEST_F(DeviceBindingTest, GradientsThatCannotBePinnedAreCopied) {
  FakeSession session(Plans(2), 0.1);
  FakeDevice device({.for_tensors_of_the_cpu = true, .most_pins = 0});
  DeviceBinding::Options options;
  options.direct_gradient = 1;
  Train(**DeviceBinding::Make(ListerOf(network_), device, options), network_, session,
        {torch::randn({4, 3})});
  EXPECT_THAT(device.violations(), IsEmpty());
  EXPECT_THAT(session.PushedNames(), ::testing::Not(IsEmpty()));
}

TEST_F(DeviceBindingTest, LargeParametersComeFromWhereAShardShowsThem) {
  TestNetwork on_host;
  FakeSession host_session(Plans(4), 0.1);
  const Microbatches microbatches = {torch::randn({4, 3})};
  Train(**HostBinding::Make(ListerOf(on_host)), on_host, host_session, microbatches);
  FakeSession session(Plans(4), 0.1);
  session.shows = true;
  {
    const auto binding = *Bind(network_);
    Train(*binding, network_, session, microbatches);
    // The gradients' memory is one.
    EXPECT_EQ(device_.pinned(), 1 + kParts);
    EXPECT_EQ(device_.copies_of_unpinned(), 0);
  }
  EXPECT_EQ(AllParameters(session), AllParameters(host_session));
  EXPECT_THAT(device_.violations(), IsEmpty());
}

// As with updates ahead, and where evaluations hold places: each is pinned once, whichever
// parameter comes to be there.
TEST_F(DeviceBindingTest, PlacesThatAShardShowsParametersInInTurnArePinnedOnce) {
  TestNetwork on_host;
  FakeSession host_session(Plans(6), 0.1);
  const Microbatches microbatches = {torch::randn({4, 3})};
  Train(**HostBinding::Make(ListerOf(on_host)), on_host, host_session, microbatches);
  FakeSession session(Plans(6), 0.1);
  session.shows = session.moves = true;
  {
    const auto binding = *Bind(network_);
    Train(*binding, network_, session, microbatches);
    EXPECT_EQ(device_.pinned(), 1 + 2 * kParts);
    EXPECT_EQ(device_.copies_of_unpinned(), 0);
  }
  EXPECT_EQ(AllParameters(session), AllParameters(host_session));
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(DeviceBindingTest, LargeGradientsAndValuesGoInPieces) {
  for (const bool shows : {false, true}) {
    TestNetwork network;
    FakeSession session(Plans(1), 0.1);
    session.shows = shows;
    const auto binding = *Bind(network);
    Train(*binding, network, session, {torch::randn({4, 3})});
    size_t weight = 0;
    while (session.tensors()[weight].name() != "first.weight") ++weight;
    // It has 48 bytes. A piece of a gradient has 12. One of values has 20, but where they
    // are shown it ends with a shown part, of eight.
    EXPECT_EQ(session.pushed_until(weight), (std::vector<size_t>{12, 24, 36}));
    std::vector<size_t> of_one_pull = {20, 40};
    if (shows) of_one_pull = {20, 44};
    std::vector<size_t> awaited = session.awaited_until(weight);
    ASSERT_GE(awaited.size(), 2u);
    awaited.resize(2);
    EXPECT_EQ(awaited, of_one_pull) << shows;
  }
  EXPECT_THAT(device_.violations(), IsEmpty());
}

// Of each step's samples other words.
class WordsNetwork final : public Network {
 public:
  static constexpr int64_t kWords = 50;
  WordsNetwork() {
    torch::manual_seed(5);
    module_ = std::make_shared<torch::nn::Module>();
    words_ = module_->register_module("words", torch::nn::Embedding(kWords, 1000));
    last_ = module_->register_module("last", torch::nn::Linear(1000, 20));
  }
  at::Tensor Forward(const at::Tensor& x) override {
    return last_(words_((x + 7 * forwards_++) % kWords));
  }
  void SetTraining(bool training) override { module_->train(training); }
  std::vector<NamedTensor> Tensors() const override { return TensorsOf(*module_); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  torch::nn::Embedding words_{nullptr};
  torch::nn::Linear last_{nullptr};
  int64_t forwards_ = 0;
};

TEST_F(DeviceBindingTest, OfAnEmbeddingOnlyWhatIsNotZeroIsBroughtToTheHost) {
  constexpr size_t kSteps = 6;
  const Microbatches words = {torch::tensor({3, 4, 41})};
  WordsNetwork on_host;
  FakeSession host_session(Plans(kSteps), 0.1);
  Train(**HostBinding::Make(ListerOf(on_host)), on_host, host_session, words);
  for (const bool can : {true, false}) {
    FakeDevice device({.for_tensors_of_the_cpu = true, .writes_to_host = can});
    WordsNetwork network;
    FakeSession session(Plans(kSteps), 0.1);
    {
      DeviceBinding::Options options;
      options.direct_gradient = 1000;
      options.direct_piece = 7000;  // ends within a block
      Train(**DeviceBinding::Make(ListerOf(network), device, options), network, session, words);
    }
    EXPECT_THAT(device.violations(), IsEmpty());
    EXPECT_EQ(AllParameters(session), AllParameters(host_session)) << "the same bits";
    ASSERT_EQ(session.tensors()[0].name(), "words.weight");
    const std::vector<std::string> pushed = session.pushed_nonzero(0);
    EXPECT_EQ(pushed.size(), can ? kSteps - 1 : 0) << "the first one is looked at";
    for (const std::string& nonzero : pushed) {
      EXPECT_LE(*NonzeroElements(nonzero, WordsNetwork::kWords * 1000), 6 * kZeroBlock);
    }
    EXPECT_EQ(session.pushed_nonzero(1).size(), 0) << "last.weight is full";
  }
}

DeviceBinding::Options OfWords() {
  DeviceBinding::Options options;
  options.direct_gradient = 1000;
  options.patience = absl::Milliseconds(200);
  return options;
}

TEST_F(DeviceBindingTest, WhereOthersWriteToTheSessionsGradientsAllIsBrought) {
  WordsNetwork network;
  FakeSession session(Plans(4), 0.1);
  DeviceBinding::Options options = OfWords();
  options.leaves_out_zeros = false;
  Train(**DeviceBinding::Make(ListerOf(network), device_, options), network, session,
        {torch::tensor({3, 4, 41})});
  EXPECT_THAT(session.pushed_nonzero(0), IsEmpty());
}

// For a step gradients go rounded, in buckets, which are copied to the same memory.
TEST_F(DeviceBindingTest, WhatHasComeToTheHostInAnotherWayIsNotTakenForZeros) {
  WordsNetwork network;
  FakeSession session(Plans(8), 0.1);
  session.on_complete = [&](uint64_t step) {
    session.on_wire = step == 3 ? BF16 : DATA_TYPE_UNSPECIFIED;  // of the next one
  };
  Train(**DeviceBinding::Make(ListerOf(network), device_, OfWords()), network, session,
        {torch::tensor({3, 4, 41})});
  EXPECT_THAT(device_.violations(), IsEmpty());
  EXPECT_EQ(session.pushed_nonzero(0).size(), 5) << "2, 3, and from 6 on";
}

TEST_F(DeviceBindingTest, AnEmbeddingOnItsWayOutlivesTheBinding) {
  WordsNetwork network;
  FakeSession session(Plans(2), 0.1);
  auto binding = *DeviceBinding::Make(ListerOf(network), device_, OfWords());
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  for (int step = 1; step <= 2; ++step) {
    ASSERT_TRUE(session.NextStep().has_value());
    if (step == 2) session.push_status = absl::AbortedError("fenced");
    ASSERT_TRUE(
        binding->Backward(network.Forward(torch::tensor({3, 4, 41})).square().mean(), true).ok());
    if (step == 2) break;
    ASSERT_TRUE(binding->Complete(1).ok());
    ASSERT_TRUE(binding->Pull(false).ok());
  }
  EXPECT_EQ(binding->Settle(), session.push_status);
  binding.reset();
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(DeviceBindingTest, GradientsThatTheSessionRoundsAreRoundedOnTheDevice) {
  FakeSession exact(Plans(1), 0.1);
  TestNetwork on_host;
  const at::Tensor x = torch::randn({4, 3});
  Train(**HostBinding::Make(ListerOf(on_host)), on_host, exact, {x});
  FakeSession session(Plans(1), 0.1);
  session.on_wire = BF16;
  auto binding = Bind(network_);
  ASSERT_TRUE(binding.ok()) << binding.status();
  Train(**binding, network_, session, {x});
  EXPECT_THAT(device_.violations(), IsEmpty());
  size_t bytes = 0;
  for (size_t i = 0; i < exact.tensors().size(); ++i) {
    const TensorSpec& spec = exact.tensors()[i];
    if (spec.buffer()) {
      bytes += ByteCount(spec);
      continue;
    }
    const auto* const whole = reinterpret_cast<const float*>(exact.gradient(i).data());
    const auto* const found = reinterpret_cast<const float*>(session.gradient(i).data());
    for (uint64_t k = 0; k < ElementCount(spec); ++k) {
      EXPECT_EQ(found[k], BFloat16ToFloat(FloatToBFloat16(whole[k]))) << spec.name();
    }
    if (spec.name() != "unused" && spec.name() != "frozen") bytes += ByteCount(spec) / 2;
  }
  EXPECT_EQ(device_.copied_to_host(), bytes);
}

TEST_F(DeviceBindingTest, EachGradientAndBufferIsCopiedToTheHostOnce) {
  FakeSession session(Plans(3), 0.1);
  const auto binding = *Bind(network_);
  std::vector<size_t> copied;
  session.on_complete = [&](uint64_t) { copied.push_back(device_.copied_to_host()); };
  Train(*binding, network_, session, {torch::randn({4, 3})});
  ASSERT_EQ(copied.size(), 3);
  // 30 values have a gradient; of the buffers 8 are float32, and one is int64.
  EXPECT_EQ(copied[0], 30 * 4 + 8 * 4 + 8);
  EXPECT_EQ(copied[2], 3 * copied[0]);
}

TEST_F(DeviceBindingTest, MemoryThatIsShownNoMoreIsLetGoOfWhenItsCopiesAreDone) {
  FakeSession session(Plans(1), 0.1);
  session.shows = true;
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  session.shows = false;
  ASSERT_TRUE(binding->Pull(/*ahead=*/false).ok());
  EXPECT_THAT(device_.violations(), IsEmpty());
}

TEST_F(DeviceBindingTest, MemoryOfGradientsThatIsAnotherIsPinnedAnew) {
  FakeSession session(Plans(4), 0.1);
  const auto binding = *Bind(network_);
  std::vector<size_t> pins;
  session.on_complete = [&](uint64_t step) {
    pins.push_back(device_.pinned());
    if (step == 2) session.renew_gradients = 1;
  };
  Train(*binding, network_, session, {torch::randn({4, 3})});
  EXPECT_THAT(pins, ::testing::ElementsAre(1, 1, 2, 2));
}

TEST_F(DeviceBindingTest, WhatIsFrozenHasNoGradientUntilItIsNot) {
  // first.weight goes alone; frozen goes in a bucket with rare and second.bias, which is whole when
  // these three have come.
  const auto freeze = [](const TestNetwork& network, uint64_t step) {
    for (const NamedTensor& named : network.Tensors()) {
      at::Tensor tensor = named.tensor;
      if (named.name == "unused") tensor.requires_grad_(false);
      if (named.name == "first.weight") tensor.requires_grad_(step != 2);
      if (named.name == "frozen") tensor.requires_grad_(step == 2);
    }
  };
  const at::Tensor x = torch::randn({4, 3});
  const auto train = [&](TrainingBinding& binding, TestNetwork& network, FakeSession& session) {
    ASSERT_TRUE(binding.Attach(session, 4, 0).ok());
    while (const auto plan = session.NextStep()) {
      freeze(network, plan->step);
      const auto there = binding.ToNetwork({x, at::Tensor()});
      ASSERT_TRUE(there.ok()) << there.status();
      const auto loss = network.Forward(there->x).square().mean();
      ASSERT_TRUE(binding.Backward(loss, true).ok());
      ASSERT_TRUE(binding.Complete(1).ok());
      ASSERT_TRUE(binding.Pull(/*ahead=*/false).ok());
      const auto pushed = session.PushedNames();
      const auto count = [&](const char* name) {
        return std::count(pushed.begin(), pushed.end(), name);
      };
      EXPECT_EQ(count("frozen"), plan->step == 2 ? 1 : 0);
      EXPECT_EQ(count("first.weight"), plan->step == 2 ? 0 : 1);
      EXPECT_EQ(count("rare"), 1);
      EXPECT_EQ(count("second.bias"), 1);
    }
  };
  TestNetwork on_host;
  freeze(on_host, 1);
  freeze(network_, 1);
  FakeSession host_session(Plans(3), 0.1);
  train(**HostBinding::Make(ListerOf(on_host)), on_host, host_session);
  FakeSession session(Plans(3), 0.1);
  train(**Bind(network_), network_, session);
  EXPECT_THAT(device_.violations(), IsEmpty());
  EXPECT_EQ(AllParameters(session), AllParameters(host_session)) << "the same bits";
}

TEST_F(DeviceBindingTest, ALoopThatForgetsToPullIsToldSo) {
  FakeSession session(Plans(2), 0.1);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  const at::Tensor x = torch::randn({4, 3});
  const auto backward = [&] {
    return binding->Backward(network_.Forward(x).square().mean(), /*last=*/true);
  };
  ASSERT_TRUE(session.NextStep().has_value());
  ASSERT_TRUE(backward().ok());
  ASSERT_TRUE(binding->Complete(1).ok());
  EXPECT_EQ(backward().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(binding->Pull(/*ahead=*/true).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  EXPECT_TRUE(backward().ok());
  ASSERT_TRUE(binding->Complete(1).ok());
}

TEST_F(DeviceBindingTest, ParametersThatWereGivenOtherMemoryAreNamed) {
  FakeSession session(Plans(1), 0.1);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  for (const NamedTensor& named : network_.Tensors()) {
    at::Tensor tensor = named.tensor;
    if (named.name == "second.weight") tensor.set_data(tensor.detach().clone());
  }
  ASSERT_TRUE(session.NextStep().has_value());
  const absl::Status status =
      binding->Backward(network_.Forward(torch::randn({4, 3})).square().mean(), /*last=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("second.weight has other memory"));
}

TEST_F(DeviceBindingTest, SamplesMayLieInAnyOrderAndHaveNoClasses) {
  FakeSession session(Plans(1), 0.1);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  const at::Tensor x = torch::randn({3, 4}).transpose(0, 1);
  ASSERT_FALSE(x.is_contiguous());
  const auto there = binding->ToNetwork({x, at::Tensor()});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_TRUE(at::equal(there->x, x));
  EXPECT_EQ(there->y.numel(), 0);
}

TEST_F(DeviceBindingTest, WhatTheLossWasMultipliedByTheGradientsAreDividedBy) {
  const Microbatches microbatches = {torch::randn({4, 3}), torch::randn({2, 3})};
  TrainBothWays(microbatches, 1024);
  TestNetwork plain;
  FakeSession plain_session(Plans(4), 0.1);
  Train(**HostBinding::Make(ListerOf(plain)), plain, plain_session, microbatches);
  TestNetwork scaled;
  FakeSession scaled_session(Plans(4), 0.1);
  Train(**HostBinding::Make(ListerOf(scaled)), scaled, scaled_session, microbatches, 1024);
  EXPECT_EQ(AllParameters(scaled_session), AllParameters(plain_session)) << "powers of two";
}

TEST_F(DeviceBindingTest, MicrobatchesAreAddedUpAndSentOnce) {
  TrainBothWays({torch::randn({4, 3}), torch::randn({4, 3})});
}

TEST_F(DeviceBindingTest, AGradientThatTheLastMicrobatchLacksIsSentToo) {
  TrainBothWays({torch::randn({4, 3}), torch::randn({2, 3})});
}

TEST_F(DeviceBindingTest, ParametersAndBuffersThatAreThereAlreadyComeToTheNetwork) {
  FakeSession session(Plans(1), 0.1);
  session.initialize = false;
  session.initial.assign(network_.Tensors().size(), 0.25);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  for (const NamedTensor& named : network_.Tensors()) {
    if (named.tensor.scalar_type() != at::kFloat) continue;
    EXPECT_TRUE(at::equal(named.tensor, torch::full_like(named.tensor, 0.25))) << named.name;
  }
}

TEST_F(DeviceBindingTest, ASteadyStepAllocatesNothingOfTheDevice) {
  FakeSession session(Plans(40), 0.1);
  const auto binding = *Bind(network_);
  std::vector<size_t> allocations;
  session.on_complete = [&](uint64_t) { allocations.push_back(device_.allocations()); };
  Train(*binding, network_, session, {torch::randn({4, 3})});
  ASSERT_EQ(allocations.size(), 40);
  // Copies that overlap as they did not before, since a thread had to wait, take a block more for
  // good.
  EXPECT_LE(allocations[39], allocations[1] + 4);
}

TEST_F(DeviceBindingTest, ADeviceThatHangsEndsTheStepWithAnError) {
  FakeSession session(Plans(1), 0.1);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  device_.Stall(StreamId::kToHost);
  EXPECT_TRUE(binding->Backward(network_.Forward(torch::randn({4, 3})).square().mean(), true).ok());
  EXPECT_EQ(binding->Settle().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(session.PushedNames(), IsEmpty());
}

TEST_F(DeviceBindingTest, WhatTheSessionRefusesIsWhatSettleSays) {
  FakeSession session(Plans(1), 0.1);
  const auto binding = *Bind(network_);
  ASSERT_TRUE(binding->Attach(session, 4, 0).ok());
  ASSERT_TRUE(session.NextStep().has_value());
  session.push_status = absl::AbortedError("fenced");
  EXPECT_TRUE(binding->Backward(network_.Forward(torch::randn({4, 3})).square().mean(), true).ok());
  EXPECT_EQ(binding->Settle(), session.push_status);
}

TEST_F(DeviceBindingTest, NoRoomOnTheDeviceIsSaidBeforeItTrains) {
  FakeDevice small({.memory_bytes = 100, .for_tensors_of_the_cpu = true});
  const auto binding = DeviceBinding::Make(ListerOf(network_), small, {});
  EXPECT_EQ(binding.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(binding.status().message()), HasSubstr("buckets of gradients"));
}

TEST_F(DeviceBindingTest, ParametersOfOtherTypesAreRefused) {
  class Doubles final : public Network {
   public:
    at::Tensor Forward(const at::Tensor& x) override { return x * weight_; }
    void SetTraining(bool /*training*/) override {}
    std::vector<NamedTensor> Tensors() const override { return {{"weight", weight_}}; }

   private:
    at::Tensor weight_ = torch::ones({3}, torch::kDouble).requires_grad_();
  } network;
  const auto binding = Bind(network);
  EXPECT_EQ(binding.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(binding.status().message()), HasSubstr("weight is not float32"));
}

}  // namespace
}  // namespace parley::testing
