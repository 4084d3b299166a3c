#ifndef PARLEY_COMMON_EVALUATION_FIGURES_H_
#define PARLEY_COMMON_EVALUATION_FIGURES_H_

#include <optional>

#include "proto/coordinator.pb.h"

namespace parley {

// What people read of an evaluation, which carries sums. NaN where nothing of it has a target.
struct EvaluationFigures {
  double loss;                       // mean over what has a target
  std::optional<double> accuracy;    // share of it, 0 to 1; where there are classes
  std::optional<double> top5;        // likewise
  std::optional<double> perplexity;  // exp(loss); where each sample has several targets
};

EvaluationFigures FiguresOf(const Evaluation& evaluation);

}  // namespace parley

#endif  // PARLEY_COMMON_EVALUATION_FIGURES_H_
