#ifndef PARLEY_WORKER_MODELS_TRANSFORMER_H_
#define PARLEY_WORKER_MODELS_TRANSFORMER_H_

#include <vector>

#include "worker/models/layered_network.h"

namespace parley {

// The language model of PyTorch's tutorial and of the courses: embedding times sqrt(width), plus
// sinusoidal positions; encoder layers (Vaswani et al. 2017, normalised after each half) in which a
// token sees itself and those before it; a linear layer to the logits of the next token. Names
// (transformer_encoder.layers.0.self_attn.in_proj_weight) and initial distributions are the
// tutorial's. settings: with their defaults; tied: decoder.weight is encoder.weight (Press and Wolf
// 2016).
// `text`: I64 [length] numbers of text.classes tokens, else InvalidArgument; and so for heads that
// do not divide the width, or an odd width. Outputs: [samples, tokens, length], as ComputeLoss
// takes them. Layers: "encoder", "transformer_encoder.layers.0", ..., "decoder".
absl::StatusOr<std::vector<LayerPlan>> PlanTransformer(const Transformer& settings,
                                                       const SampleLayout& text);

}  // namespace parley

#endif  // PARLEY_WORKER_MODELS_TRANSFORMER_H_
