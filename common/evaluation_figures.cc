#include "common/evaluation_figures.h"

#include <cmath>

namespace parley {

EvaluationFigures FiguresOf(const Evaluation& evaluation) {
  const double counted = static_cast<double>(evaluation.samples()) - evaluation.left_out();
  const auto mean = [counted](double sum) { return counted > 0 ? sum / counted : std::nan(""); };
  EvaluationFigures figures{.loss = mean(evaluation.loss_sum())};
  if (evaluation.classes()) {
    figures.accuracy = mean(static_cast<double>(evaluation.correct()));
    figures.top5 = mean(static_cast<double>(evaluation.correct_top5()));
  }
  if (evaluation.tokens()) figures.perplexity = std::exp(figures.loss);
  return figures;
}

}  // namespace parley
