#include "worker/models/layered_network.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cctype>
#include <cstddef>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace parley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kStep = 41;

JobConfig JobWith(const std::string& model) {
  JobConfig job;
  job.set_seed(7);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(model, job.mutable_model())) << model;
  return job;
}

struct Case {
  std::string model;
  SampleLayout sample;
  size_t layers;     // so many are there
  size_t every = 1;  // one in so many of them is cut before, where a run takes long

  friend void PrintTo(const Case& each, std::ostream* out) { *out << each.model; }
};

std::vector<LayerPlan> PlanOf(const Case& model) {
  auto plan = PlanLayers(JobWith(model.model), model.sample);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

std::vector<NetworkLayer> Make(const std::vector<LayerPlan>& plan, LayerSet& tensors) {
  std::vector<NetworkLayer> layers;
  for (const LayerPlan& each : plan) layers.push_back(each.make(tensors));
  return layers;
}

at::Tensor Samples(const Case& model, int64_t count) {
  std::vector<int64_t> shape = {count};
  shape.insert(shape.end(), model.sample.shape.begin(), model.sample.shape.end());
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  if (model.sample.dtype == I64) {
    return at::arange(elements).mul(7).remainder(model.sample.classes).reshape(shape);
  }
  return (at::arange(elements, at::kDouble) * 0.37).sin().to(at::kFloat).reshape(shape);
}

at::Tensor Waves(const at::Tensor& like) {
  return (at::arange(like.numel(), at::kFloat) * 0.61).cos().reshape(like.sizes());
}

// What one forward and backward leave behind.
struct Result {
  at::Tensor outputs;
  std::vector<NamedTensor> gradients;
  std::vector<NamedTensor> buffers;
};

// Takes the gradients away, and leaves the buffers as they were before.
class Run {
 public:
  explicit Run(std::vector<NamedTensor> tensors) : tensors_(std::move(tensors)) {
    for (const NamedTensor& named : tensors_) {
      if (named.buffer) before_.push_back(named.tensor.clone());
    }
  }
  Result End(const at::Tensor& outputs) {
    Result result{outputs.detach(), {}, {}};
    size_t buffer = 0;
    for (NamedTensor& named : tensors_) {
      if (named.buffer) {
        result.buffers.push_back({named.name, named.tensor.clone()});
        named.tensor.copy_(before_[buffer++]);
      } else {
        result.gradients.push_back({named.name, named.tensor.grad()});
        named.tensor.mutable_grad() = at::Tensor();
      }
    }
    return result;
  }

 private:
  std::vector<NamedTensor> tensors_;
  std::vector<at::Tensor> before_;
};

void ExpectSame(const std::vector<NamedTensor>& got, const std::vector<NamedTensor>& expected,
                const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].tensor.defined()) << what << got[i].name;
    EXPECT_TRUE(at::equal(got[i].tensor, expected[i].tensor)) << what << got[i].name;
  }
}

Result RunWhole(const std::vector<NetworkLayer>& layers, const at::Tensor& x) {
  LayeredNetwork whole(layers, 0);
  Run run(whole.Tensors());
  whole.Seed(kStep);
  const at::Tensor outputs = whole.Forward(x);
  outputs.backward(Waves(outputs));
  return run.End(outputs);
}

// As two processes would: tensors go from one to the other without strides and without history.
Result RunCut(const std::vector<NetworkLayer>& layers, size_t cut, const at::Tensor& x) {
  const auto middle = layers.begin() + static_cast<std::ptrdiff_t>(cut);
  LayeredNetwork first({layers.begin(), middle}, 0);
  LayeredNetwork second({middle, layers.end()}, cut);
  Run run(LayeredNetwork(layers, 0).Tensors());
  first.Seed(kStep);
  const LayerFlow sent = first.Run({x});
  first.Network::Seed(99);  // the second one's process has drawn other numbers before
  second.Seed(kStep);
  LayerFlow received;
  for (const at::Tensor& tensor : sent) {
    received.push_back(tensor.detach().contiguous().clone().set_requires_grad(true));
  }
  const at::Tensor outputs = second.Run(received).at(0);
  outputs.backward(Waves(outputs));
  LayerFlow gradients;
  for (const at::Tensor& tensor : received) gradients.push_back(tensor.grad().contiguous());
  torch::autograd::backward(sent, gradients);
  return run.End(outputs);
}

class CutTest : public ::testing::TestWithParam<Case> {
 protected:
  // LibTorch's threads would wait for each other where other tests have the cores.
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_P(CutTest, CutAnywhereAModelComputesTheSameBits) {
  const std::vector<LayerPlan> plan = PlanOf(GetParam());
  ASSERT_EQ(plan.size(), GetParam().layers);
  LayerSet tensors(7);
  const std::vector<NetworkLayer> layers = Make(plan, tensors);
  const at::Tensor x = Samples(GetParam(), 3);
  const Result whole = RunWhole(layers, x);
  for (size_t cut = 1; cut < layers.size(); cut += GetParam().every) {
    const std::string what = "cut before " + layers[cut].name + ": ";
    const Result parts = RunCut(layers, cut, x);
    EXPECT_TRUE(at::equal(parts.outputs, whole.outputs)) << what;
    ExpectSame(parts.gradients, whole.gradients, what);
    ExpectSame(parts.buffers, whole.buffers, what);
  }
}

TEST_P(CutTest, ALayerMadeAloneHasTheTensorsThatItHasAmongAll) {
  const std::vector<LayerPlan> plan = PlanOf(GetParam());
  LayerSet all(7);
  const std::vector<NetworkLayer> layers = Make(plan, all);
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_EQ(layers[i].name, plan[i].name);
    LayerSet own(7);
    const NetworkLayer alone = plan[i].make(own);
    ASSERT_EQ(alone.tensors.size(), layers[i].tensors.size()) << alone.name;
    EXPECT_EQ(own.tensors().size(), alone.tensors.size()) << alone.name;
    for (size_t t = 0; t < alone.tensors.size(); ++t) {
      EXPECT_EQ(alone.tensors[t].name, layers[i].tensors[t].name);
      EXPECT_EQ(alone.tensors[t].buffer, layers[i].tensors[t].buffer);
    }
    ExpectSame(alone.tensors, layers[i].tensors, "");
  }
}

TEST_P(CutTest, ShapesAreKnownBeforeAnythingIsAllocated) {
  const std::vector<LayerPlan> plan = PlanOf(GetParam());
  LayerSet shapes(7, LayerSet::Values::kNone);
  LayerSet values(7);
  const auto without = LayeredNetwork(Make(plan, shapes), 0).Tensors();
  const auto with = LayeredNetwork(Make(plan, values), 0).Tensors();
  ASSERT_EQ(without.size(), with.size());
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_EQ(without[i].name, with[i].name);
    EXPECT_EQ(without[i].buffer, with[i].buffer);
    EXPECT_EQ(without[i].tensor.sizes(), with[i].tensor.sizes());
    EXPECT_EQ(without[i].tensor.scalar_type(), with[i].tensor.scalar_type());
    EXPECT_TRUE(without[i].tensor.is_meta());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CutTest,
    ::testing::Values(Case{"simple_cnn {}", {F32, {1, 28, 28}}, 4},
                      Case{"resnet { depth: 18 classes: 10 }", {F32, {3, 32, 32}}, 10},
                      Case{"resnet { depth: 34 classes: 10 }", {F32, {3, 32, 32}}, 18},
                      Case{"resnet { depth: 50 classes: 10 }", {F32, {3, 32, 32}}, 18},
                      Case{"vgg19 { classes: 10 }", {F32, {3, 32, 32}}, 19, 4},
                      Case{"xresnet50 { classes: 10 }", {F32, {3, 32, 32}}, 20, 2},
                      Case{"transformer { width: 8 heads: 2 hidden: 6 layers: 3 dropout: 0.3 }",
                           {I64, {9}, 31},
                           5},
                      Case{"transformer { width: 8 heads: 2 hidden: 6 layers: 2 dropout: 0.3 "
                           "tied: true }",
                           {I64, {9}, 31},
                           4},
                      Case{"transformer { width: 8 heads: 2 hidden: 6 layers: 5 dropout: 0.3 "
                           "skips: true }",
                           {I64, {9}, 31},
                           7}),
    [](const auto& info) {
      std::string name;
      for (const char c : info.param.model) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
      }
      return name;
    });

TEST(LayeredNetworkTest, TheLayersOfAResNetAreItsStemItsBlocksAndItsEnd) {
  std::vector<std::string> names;
  for (const LayerPlan& layer : PlanOf({"resnet { depth: 18 classes: 10 }", {F32, {3, 32, 32}}})) {
    names.push_back(layer.name);
  }
  EXPECT_THAT(names, ElementsAre("conv1", "layer1.0", "layer1.1", "layer2.0", "layer2.1",
                                 "layer3.0", "layer3.1", "layer4.0", "layer4.1", "fc"));
}

TEST(LayeredNetworkTest, ModelsThatAreOnePieceCannotBeCut) {
  for (const std::string model : {"torchscript: \"net.pt\"", "own {}", ""}) {
    const absl::Status status = PlanLayers(JobWith(model), {F32, {3, 32, 32}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("can be cut")) << model;
  }
}

// Two layers that share `shared`, the second one with a buffer and a parameter of its own.
std::vector<NetworkLayer> Sharing() {
  const NamedTensor shared = {"shared", at::ones({2})};
  const auto same = [](const at::Tensor& x, bool /*training*/) { return x; };
  return {{"a", same, {shared, {"mean", at::ones({3}), true}}},
          {"b", same, {shared, {"own", at::ones({4})}, {"variance", at::ones({5}), true}}}};
}

TEST(LayeredNetworkTest, ASharedTensorIsGivenOnceAndBuffersComeLast) {
  std::vector<std::string> names;
  for (const NamedTensor& named : LayeredNetwork(Sharing(), 0).Tensors()) {
    names.push_back(named.name);
  }
  EXPECT_THAT(names, ElementsAre("shared", "own", "mean", "variance"));
}

std::vector<NetworkLayer> Dropouts(size_t count) {
  const auto drop = [](const at::Tensor& x, bool training) {
    return at::dropout(x, 0.5, training);
  };
  return std::vector<NetworkLayer>(count, NetworkLayer{"drop", drop, {}});
}

TEST(LayeredNetworkTest, EachForwardAfterASeedDrawsTheSame) {
  LayeredNetwork network(Dropouts(1), 3);
  const at::Tensor x = at::ones({64});
  network.Seed(1);
  const at::Tensor first = network.Forward(x);
  EXPECT_TRUE(at::equal(network.Forward(x), first));
  network.Seed(2);
  EXPECT_FALSE(at::equal(network.Forward(x), first));
  network.Seed(1);
  EXPECT_TRUE(at::equal(network.Forward(x), first));
}

TEST(LayeredNetworkTest, SeededAtOnceItsForwardSeedsNothing) {
  LayeredNetwork network(Dropouts(2), 3);
  const at::Tensor x = at::ones({64});
  network.Seed(7);
  network.SeedAtOnce(1);
  const at::Tensor drawn = network.Forward(x);
  at::manual_seed(1);
  EXPECT_TRUE(at::equal(drawn, at::dropout(at::dropout(x, 0.5, true), 0.5, true)));
}

TEST(LayeredNetworkTest, LayersDrawApartFromEachOther) {
  const at::Tensor x = at::ones({64});
  std::vector<at::Tensor> drawn;
  for (const size_t first_layer : {0, 1, 2}) {
    LayeredNetwork network(Dropouts(1), first_layer);
    network.Seed(1);
    drawn.push_back(network.Forward(x));
  }
  EXPECT_FALSE(at::equal(drawn[0], drawn[1]));
  LayeredNetwork two(Dropouts(2), 1);
  two.Seed(1);
  EXPECT_TRUE(at::equal(two.Forward(x), drawn[1] * drawn[2]));
}

TEST(LayeredNetworkTest, InEvaluationNothingIsDropped) {
  LayeredNetwork network(Dropouts(2), 0);
  network.SetTraining(false);
  EXPECT_TRUE(at::equal(network.Forward(at::ones({64})), at::ones({64})));
  network.SetTraining(true);
  EXPECT_FALSE(at::equal(network.Forward(at::ones({64})), at::ones({64})));
}

at::Tensor Named(const LayeredNetwork& network, const std::string& name) {
  for (const NamedTensor& named : network.Tensors()) {
    if (named.name == name) return named.tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

// The last blocks have feature maps of one pixel: with one sample there is no variance to learn.
TEST(LayeredNetworkTest, StatisticsThatABatchOfOneValueDoesNotHaveAreLeftAlone) {
  at::set_num_threads(1);
  const Case model = {"resnet { depth: 18 classes: 10 }", {F32, {3, 32, 32}}, 10};
  LayerSet tensors(7);
  LayeredNetwork network(Make(PlanOf(model), tensors), 0);
  const auto train = [&](int64_t samples) {
    const at::Tensor outputs = network.Forward(Samples(model, samples));
    outputs.backward(Waves(outputs));
    for (const NamedTensor& named : network.Tensors()) {
      const at::Tensor values = named.buffer ? named.tensor : named.tensor.grad();
      EXPECT_TRUE(at::isfinite(values).all().item().toBool()) << named.name;
    }
  };
  const auto batches = [&](const std::string& norm) {
    return Named(network, norm + ".num_batches_tracked").item().toLong();
  };
  train(1);
  EXPECT_EQ(batches("bn1"), 1);
  EXPECT_EQ(batches("layer3.1.bn2"), 1);
  EXPECT_EQ(batches("layer4.0.bn1"), 0);
  EXPECT_TRUE(at::equal(Named(network, "layer4.0.bn1.running_mean"), at::zeros({512})));
  EXPECT_TRUE(at::equal(Named(network, "layer4.0.bn1.running_var"), at::ones({512})));
  train(2);
  EXPECT_EQ(batches("bn1"), 2);
  EXPECT_EQ(batches("layer4.0.bn1"), 1);
  EXPECT_FALSE(at::equal(Named(network, "layer4.0.bn1.running_var"), at::ones({512})));
}

TEST(LayeredNetworkTest, OneValueOfAChannelIsNormalisedToItsBias) {
  LayerSet tensors(7);
  const BatchNorm norm = tensors.AddBatchNorm("n", 3);
  {
    const c10::NoGradGuard no_grad;
    norm.bias.copy_(at::arange(3));
  }
  const at::Tensor outputs = norm(at::ones({1, 3, 1, 1}) * 5, /*training=*/true);
  EXPECT_TRUE(at::allclose(outputs.flatten(), at::arange(3, at::kFloat), 0, 1e-3)) << outputs;
  EXPECT_EQ(norm.batches.item().toLong(), 0);
}

TEST(LayerSetTest, ANameThatWasAddedBeforeGivesTheSameTensor) {
  LayerSet tensors(7);
  const Linear a = tensors.AddLinear("a", 3, 2, Initial::kUniform);
  EXPECT_EQ(tensors.TakeUsed().size(), 2);
  const Linear again = tensors.AddLinear("a", 3, 2, Initial::kUniform);
  tensors.AddBatchNorm("n", 3);
  EXPECT_TRUE(again.weight.is_same(a.weight));
  EXPECT_TRUE(again.bias.is_same(a.bias));
  std::vector<std::string> used;
  for (const NamedTensor& named : tensors.TakeUsed()) used.push_back(named.name);
  EXPECT_THAT(used, ElementsAre("a.weight", "a.bias", "n.weight", "n.bias", "n.running_mean",
                                "n.running_var", "n.num_batches_tracked"));
  EXPECT_TRUE(tensors.TakeUsed().empty());
  EXPECT_EQ(tensors.tensors().size(), 7);
}

}  // namespace
}  // namespace parley
