#include "common/evaluation_figures.h"

#include <gtest/gtest.h>

#include <cmath>

namespace parley {
namespace {

Evaluation Sums() {
  Evaluation sums;
  sums.set_samples(20);
  sums.set_loss_sum(32);
  sums.set_correct(8);
  sums.set_correct_top5(12);
  return sums;
}

TEST(EvaluationFiguresTest, AreMeansOverWhatHasATarget) {
  Evaluation sums = Sums();
  sums.set_classes(true);
  sums.set_left_out(4);
  const EvaluationFigures figures = FiguresOf(sums);
  EXPECT_EQ(figures.loss, 2);
  EXPECT_EQ(figures.accuracy, 0.5);
  EXPECT_EQ(figures.top5, 0.75);
  EXPECT_EQ(figures.perplexity, std::nullopt);
}

TEST(EvaluationFiguresTest, ThereAreThoseThatMeanSomething) {
  Evaluation sums = Sums();
  sums.set_tokens(true);
  const EvaluationFigures figures = FiguresOf(sums);
  EXPECT_EQ(figures.perplexity, std::exp(1.6));
  EXPECT_EQ(figures.accuracy, std::nullopt);
  EXPECT_EQ(figures.top5, std::nullopt);
}

TEST(EvaluationFiguresTest, OfNothingTheyAreNoNumbers) {
  Evaluation sums = Sums();
  sums.set_classes(true);
  sums.set_left_out(20);
  sums.set_loss_sum(0);
  const EvaluationFigures figures = FiguresOf(sums);
  EXPECT_TRUE(std::isnan(figures.loss));
  EXPECT_TRUE(std::isnan(*figures.accuracy));
}

}  // namespace
}  // namespace parley
