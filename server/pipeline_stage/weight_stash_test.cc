#include "server/pipeline_stage/weight_stash.h"

#include <ATen/ops/ones_like.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/torch/testing/fake_session.h"
#include "server/pipeline_stage/schedule/schedules.h"

namespace parley {
namespace {

constexpr double kRate = 0.05;

// One whose gradient depends on its weights twice: those of the forward, and, since LibTorch looks
// at a parameter again when it goes back, those that it has then.
struct Squares : torch::nn::Module {
  Squares() { weight = register_parameter("weight", torch::full({3}, 2.0, torch::kFloat64)); }
  at::Tensor Loss(size_t step) {
    return (weight * weight * weight * (1 + 0.1 * static_cast<double>(step))).sum();
  }
  at::Tensor weight;
};

std::vector<StepPlan> Plans(size_t count) {
  std::vector<StepPlan> plans;
  for (size_t i = 0; i < count; ++i) {
    StepPlan& plan = plans.emplace_back();
    plan.step = i + 1;
    plan.samples = {i};
    plan.weight = 1;
  }
  return plans;
}

class WeightStashTest : public ::testing::Test {
 protected:
  void Attach(size_t steps) {
    binding_.reset();
    module_ = std::make_unique<Squares>();
    binding_ = *ModuleBinding::Create(*module_);
    plans_ = Plans(steps);
    session_ = std::make_unique<FakeSession>(plans_, kRate);
    ASSERT_EQ(binding_->Attach(*session_, 10, 0), absl::OkStatus());
  }

  std::unique_ptr<WeightStash> Begin(uint32_t delay, absl::Duration quiet = absl::Seconds(1)) {
    WeightStash::Options options;
    options.quiet = quiet;
    options.plans = plans_;
    options.delay = delay;
    options.lost = lost_;
    options.patience = patience_;
    options.on_decided = [this](const Verdict& verdict, const StepPlan& plan) {
      EXPECT_EQ(verdict.step(), plan.step);
      decided_.push_back(verdict.step());
      ++verdicts_;
    };
    auto stash = std::make_unique<WeightStash>(options, *session_, *binding_);
    EXPECT_EQ(stash->Begin(), absl::OkStatus());
    return stash;
  }

  void AwaitVerdicts(size_t count) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (verdicts_ < count && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  }

  // A stage that is `ahead` forwards ahead of its backwards.
  absl::Status Compute(WeightStash& stash, size_t ahead) {
    std::vector<at::Tensor> losses(plans_.size());
    for (size_t i = 0; i < plans_.size() + ahead; ++i) {
      if (i < plans_.size()) {
        if (absl::Status used = stash.Use(i); !used.ok()) return used;
        losses[i] = module_->Loss(i);
      }
      if (i < ahead) continue;
      const size_t back = i - ahead;
      if (absl::Status used = stash.Use(back); !used.ok()) return used;
      // In two parts, as of two microbatches.
      absl::Status status = binding_->GatherGradients(
          [&] { (losses[back] * 0.25).backward({}, /*retain_graph=*/true); });
      status.Update(binding_->GatherGradients([&] { (losses[back] * 0.75).backward(); }));
      if (status.ok()) status = stash.Submit(back);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Squares> module_;
  std::unique_ptr<FakeSession> session_;  // destroyed after the binding
  std::unique_ptr<ModuleBinding> binding_;
  std::vector<StepPlan> plans_;
  std::vector<uint64_t> decided_;
  std::atomic<size_t> verdicts_ = 0;
  std::function<absl::Status()> lost_ = [] { return absl::OkStatus(); };
  absl::Duration patience_ = absl::InfiniteDuration();
};

// w(t + 1) = w(t) - rate * gradient(w(t - delay)), or w(0) where there is none.
double Delayed(size_t steps, size_t delay) {
  std::vector<double> weights = {2.0};
  for (size_t t = 0; t < steps; ++t) {
    const double old = weights[t > delay ? t - delay : 0];
    weights.push_back(weights[t] - kRate * 3 * old * old * (1 + 0.1 * static_cast<double>(t)));
  }
  return weights.back();
}

TEST_F(WeightStashTest, EveryStepIsComputedWithTheWeightsThatItsDelaySays) {
  constexpr size_t kSteps = 9;
  for (size_t delay = 1; delay <= 4; ++delay) {
    for (size_t ahead = 0; ahead <= delay; ++ahead) {
      SCOPED_TRACE(testing::Message() << "delay " << delay << ", ahead " << ahead);
      decided_.clear();
      Attach(kSteps);
      {
        auto stash = Begin(static_cast<uint32_t>(delay));
        const absl::StatusOr<bool> counted = stash->End(Compute(*stash, ahead));
        ASSERT_TRUE(counted.ok() && *counted) << counted.status();
      }
      EXPECT_EQ(decided_.size(), kSteps);
      ASSERT_EQ(binding_->Pull(), absl::OkStatus());
      EXPECT_NEAR(module_->weight[0].item<double>(), Delayed(kSteps, delay), 1e-12);
    }
  }
}

// The session has its own copies of what it sends.
TEST_F(WeightStashTest, AStepsGradientsGoBeforeItsVerdictIsWaitedFor) {
  Attach(3);
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> gradients;
  std::vector<bool> gone;
  session_->on_complete = [&](uint64_t step) { gone.push_back(gradients[step - 1].expired()); };
  auto stash = Begin(1);
  for (size_t step = 0; step < 3; ++step) {
    ASSERT_EQ(stash->Use(step), absl::OkStatus());
    at::Tensor gradient = at::ones_like(module_->weight);
    gradients.emplace_back(gradient.storage().getWeakStorageImpl());
    const absl::Status gathered = binding_->GatherGradients(
        [&] { binding_->AddGradient(module_->weight, std::exchange(gradient, at::Tensor())); });
    ASSERT_EQ(gathered, absl::OkStatus());
    EXPECT_FALSE(gradients.back().expired());
    ASSERT_EQ(stash->Submit(step), absl::OkStatus());
    AwaitVerdicts(step + 1);
  }
  ASSERT_TRUE(stash->End(absl::OkStatus()).ok());
  EXPECT_EQ(gone, (std::vector<bool>{true, true, true}));
}

// A stage that is one forward ahead, as the first one of two; of each point the most that there can
// be, when all that was submitted is decided.
TEST_F(WeightStashTest, OneVersionMoreThanTheDelayIsThereWhileABackwardRuns) {
  constexpr size_t kDelay = 2;
  Attach(8);
  auto stash = Begin(kDelay);
  const auto settle = [&](size_t copies) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    size_t seen = stash->copies();
    while (seen != copies && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
      seen = stash->copies();
    }
    return seen;
  };
  std::vector<at::Tensor> losses(plans_.size());
  const auto forward = [&](size_t step) {
    ASSERT_EQ(stash->Use(step), absl::OkStatus());
    losses[step] = module_->Loss(step);
  };
  forward(0);
  for (size_t step = 0; step < plans_.size(); ++step) {
    AwaitVerdicts(step);  // else what is submitted stands in for what becomes of it
    if (step + 1 < plans_.size()) forward(step + 1);
    ASSERT_EQ(stash->Use(step), absl::OkStatus());
    // Of step 2: what it and the two before are computed with, which the next one is, and the
    // newest. Of the last steps no version is kept.
    const size_t versions = 1 + std::min(step, kDelay);
    if (step + kDelay < plans_.size()) {
      const size_t kept = settle(versions);
      EXPECT_EQ(kept, versions) << step;
      EXPECT_LE(kept + 1, StashedCopies(kDelay)) << "and what this backward gathers";
    }
    ASSERT_EQ(binding_->GatherGradients([&] { losses[step].backward(); }), absl::OkStatus());
    ASSERT_EQ(stash->Submit(step), absl::OkStatus());
  }
  EXPECT_TRUE(stash->End(absl::OkStatus()).ok());
  EXPECT_EQ(StashedCopies(kDelay), kDelay + 2);
}

// First as fast as it can be, so that all versions are there, then for some steps not at all: what
// is to be sent comes to lie where versions were.
TEST_F(WeightStashTest, WhereVerdictsAreLateNoMoreIsKept) {
  constexpr size_t kDelay = 4, kFast = 8;
  Attach(20);
  absl::Notification go_on;
  absl::Notification is_late;
  session_->on_complete = [&](uint64_t step) {
    if (step != kFast) return;
    is_late.Notify();
    go_on.WaitForNotification();
  };
  auto stash = Begin(kDelay);
  size_t most = 0;
  for (size_t step = 0; step < kFast + kDelay; ++step) {
    ASSERT_EQ(stash->Use(step), absl::OkStatus());
    const at::Tensor loss = module_->Loss(step);
    ASSERT_EQ(binding_->GatherGradients([&] { loss.backward(); }), absl::OkStatus());
    most = std::max(most, stash->copies() + 1);
    ASSERT_EQ(stash->Submit(step), absl::OkStatus());
    most = std::max(most, stash->copies());
    AwaitVerdicts(std::min(step + 1, kFast - 1));
    if (step + 1 == kFast) is_late.WaitForNotification();
  }
  go_on.Notify();
  for (size_t step = kFast + kDelay; step < plans_.size(); ++step) {
    ASSERT_EQ(stash->Use(step), absl::OkStatus());
    ASSERT_EQ(stash->Submit(step), absl::OkStatus());
  }
  EXPECT_TRUE(stash->End(absl::OkStatus()).ok());
  EXPECT_LE(most, StashedCopies(kDelay));
}

// A message of this stage has not come where it was sent, though its process is there: the session
// hears of nothing, and no verdict comes.
TEST_F(WeightStashTest, WhatIsLostOnItsWayEndsTheWaitForWeightsAndTheJob) {
  for (const bool computes : {true, false}) {
    Attach(6);
    absl::Notification waits;
    absl::Notification failed;
    session_->on_complete = [&](uint64_t) {
      waits.Notify();
      failed.WaitForNotification();
    };
    const absl::Status lost = absl::UnavailableError("stage 1 cannot be reached");
    lost_ = [&] { return lost; };
    patience_ = absl::Milliseconds(20);
    auto stash = Begin(1);
    ASSERT_EQ(stash->Use(0), absl::OkStatus());
    ASSERT_EQ(stash->Submit(0), absl::OkStatus());
    ASSERT_EQ(stash->Submit(1), absl::OkStatus());
    absl::Status why;
    if (computes) {
      why = stash->Use(2);
      EXPECT_EQ(why, lost);
    }
    session_->on_fail = [&] { failed.Notify(); };
    waits.WaitForNotification();
    EXPECT_EQ(stash->End(why).status(), lost);
    ASSERT_TRUE(session_->failure().has_value());
    EXPECT_EQ(session_->failure()->text(), "worker 0: stage 1 cannot be reached");
  }
}

TEST_F(WeightStashTest, WhatTheServiceSaysEndsTheStretchForTheOneWhoComputes) {
  Attach(6);
  session_->push_status = absl::AbortedError("the job has failed");
  auto stash = Begin(1);
  const absl::Status computed = Compute(*stash, 1);
  EXPECT_EQ(computed, session_->push_status);
  EXPECT_EQ(stash->End(computed).status(), session_->push_status);
}

TEST_F(WeightStashTest, WhatAStageWaitsForTheSessionTells) {
  Attach(2);
  auto stash = Begin(1, /*quiet=*/absl::Milliseconds(1));
  const auto told = [&] {
    return session_->HasAwaitedPeers("computing step 1 of a stretch of 2: waiting for an input");
  };
  EXPECT_EQ(stash->AwaitPeers("waiting for an input", told), absl::OkStatus());
  // And afterwards that it computes.
  const auto computes = [&] {
    return session_->HasAwaitedPeers("computing step 2 of a stretch of 2");
  };
  ASSERT_EQ(stash->Use(0), absl::OkStatus());
  ASSERT_EQ(stash->Submit(0), absl::OkStatus());
  EXPECT_EQ(stash->AwaitPeers("", computes), absl::OkStatus());
  ASSERT_EQ(stash->Submit(1), absl::OkStatus());
  EXPECT_TRUE(stash->End(absl::OkStatus()).ok());
}

TEST_F(WeightStashTest, AStepThatTheJobHasGoneOnWithoutIsNoError) {
  Attach(6);
  session_->late = {3};
  auto stash = Begin(1);
  const absl::StatusOr<bool> counted = stash->End(Compute(*stash, 1));
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_FALSE(*counted);
  EXPECT_EQ(decided_, (std::vector<uint64_t>{1, 2}));
}

TEST_F(WeightStashTest, AStageThatCannotGoOnEndsTheJobWithItsOwnReason) {
  Attach(6);
  auto stash = Begin(1);
  ASSERT_EQ(stash->Use(0), absl::OkStatus());
  const absl::Status why = absl::InvalidArgumentError("backward: no such function");
  EXPECT_EQ(stash->End(why).status(), why);
  ASSERT_TRUE(session_->failure().has_value());
  EXPECT_EQ(session_->failure()->text(), "worker 0: backward: no such function");
}

// It hears of that from the job; until then it may go on.
TEST_F(WeightStashTest, AProcessThatIsGoneIsNotTheStagesOwnReason) {
  Attach(6);
  auto stash = Begin(1);
  const absl::Status gone = absl::UnavailableError("stage 1 cannot be reached");
  EXPECT_EQ(stash->End(gone).status(), gone);
  EXPECT_FALSE(session_->failure().has_value());
}

}  // namespace
}  // namespace parley
