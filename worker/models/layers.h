#ifndef PARLEY_WORKER_MODELS_LAYERS_H_
#define PARLEY_WORKER_MODELS_LAYERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/torch/named_tensors.h"

namespace parley {

// The layers of the networks, with PyTorch's names and definitions. They hold handles: what
// writes to a tensor of LayerSet::tensors() writes to the layer's. x: [samples, channels, height,
// width] or, of Linear and LayerNorm, [..., features]; float32. What LibTorch throws passes
// through.
struct Conv {
  at::Tensor weight;
  at::Tensor bias;  // may be none
  int64_t stride = 1;
  int64_t padding = 0;

  at::Tensor operator()(const at::Tensor& x) const;
};

struct Linear {
  at::Tensor weight;
  at::Tensor bias;

  at::Tensor operator()(const at::Tensor& x) const;
};

// With the statistics of the batch in training, which it adds to the running ones unless the batch
// has but one value of each channel; with these otherwise.
struct BatchNorm {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor batches;

  at::Tensor operator()(const at::Tensor& x, bool training) const;
};

// Over the features of each place (Ba et al. 2016).
struct LayerNorm {
  at::Tensor weight;
  at::Tensor bias;

  at::Tensor operator()(const at::Tensor& x) const;
};

// A convolution, and the normalisation of its outputs.
struct NormedConv {
  Conv conv;
  BatchNorm norm;

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    return norm(conv(x), training);
  }
};

// What a weight begins with. Biases begin with 0, but for kUniform.
enum class Initial {
  kUniform,        // weight and bias: +-1/sqrt(fan in); PyTorch's default of both layer types
  kKaimingFanIn,   // normal, deviation sqrt(2 / fan in) (He et al. 2015)
  kKaimingFanOut,  // the same with fan out
  kSmallNormal,    // normal, deviation 0.01
  kUniformWeight,  // weight: as kUniform
  kXavier,         // uniform, +-sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010)
  kTenth,          // uniform, +-0.1
};

// Makes layers, and keeps their tensors. Each has values from a generator of its own, seeded from
// (seed, its name): so they do not depend on the order in which layers are made, nor on which of
// them are. A name that was added before gives the tensor that is there (a tied embedding); its
// shape and initial values are those of the first time, so all who add it ask for the same.
class LayerSet {
 public:
  // Tensors with values; with zeros, whose memory is there when it is used first; or with shapes
  // alone, on at::kMeta: to count them.
  enum class Values { kDrawn, kZero, kNone };
  explicit LayerSet(uint64_t seed, Values values = Values::kDrawn) : seed_(seed), values_(values) {}

  struct ConvShape {
    int64_t in;
    int64_t out;
    int64_t kernel;
    int64_t stride = 1;
    int64_t padding = 0;
    bool bias = true;
  };
  Conv AddConv(const std::string& name, const ConvShape& shape, Initial initial);
  Linear AddLinear(const std::string& name, int64_t in, int64_t out, Initial initial);
  // weight: of all channels, at first.
  BatchNorm AddBatchNorm(const std::string& name, int64_t channels, double weight = 1);

  LayerNorm AddLayerNorm(const std::string& name, int64_t features);
  at::Tensor AddOnes(const std::string& name, at::IntArrayRef shape);
  // For what has tensors of other names than NAME.weight and NAME.bias. AddBias: for such a weight.
  at::Tensor AddWeight(const std::string& name, at::IntArrayRef shape, Initial initial);
  at::Tensor AddBias(const std::string& name, at::IntArrayRef weight, Initial initial);

  // In the order in which they were made, parameters first.
  std::vector<NamedTensor> tensors() const;

  // Those that the functions above have given since the last call, each once, parameters first.
  std::vector<NamedTensor> TakeUsed();

 private:
  // The tensor of that name; a new one with `shape` and `initial` values if there is none.
  at::Tensor Get(const std::string& name, bool buffer, at::IntArrayRef shape, at::ScalarType type,
                 const std::function<void(at::Tensor&)>& initial);
  at::Tensor Parameter(const std::string& name, at::IntArrayRef shape,
                       const std::function<void(at::Tensor&)>& initial);

  const uint64_t seed_;
  const Values values_;
  std::vector<NamedTensor> tensors_;
  std::vector<NamedTensor> used_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_LAYERS_H_
