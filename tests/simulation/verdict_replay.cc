#include "tests/simulation/verdict_replay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "common/job/data_division.h"

namespace parley {

const std::vector<uint64_t>& EpochOrders::Of(uint64_t epoch) {
  const auto found = orders_.find(epoch);
  if (found != orders_.end()) return found->second;
  return orders_.emplace(epoch, EpochOrder(seed_, epoch, samples_, shuffle_)).first->second;
}

std::map<uint64_t, DataPosition> PositionsAfter(const std::map<uint64_t, Verdict>& verdicts,
                                                uint64_t samples) {
  std::map<uint64_t, DataPosition> positions;
  DataPosition position;
  for (const auto& [step, verdict] : verdicts) {
    std::vector<SampleRange> ranges;
    for (const Share& share : verdict.shares()) {
      ranges.insert(ranges.end(), share.ranges().begin(), share.ranges().end());
    }
    // What is wrong with ranges is found elsewhere.
    if (!ranges.empty()) MarkUsed(position, verdict.data_epoch(), ranges, samples).IgnoreError();
    positions[step] = position;
  }
  return positions;
}

VerdictReplay::VerdictReplay(const JobConfig& job, SimulatedModel model, uint64_t samples)
    : model_(std::move(model)),
      mean_(!SumsContributions(job)),
      nominal_(NominalSamples(job)),
      clip_norm_(IsClocked(job) ? 0 : job.optimizer().clip_norm()),
      orders_(job, samples),
      versions_(1, std::vector<float>(model_.elements(), 0)) {}

const std::vector<float>* VerdictReplay::At(uint64_t version) const {
  return version < versions_.size() ? &versions_[version] : nullptr;
}

std::optional<std::string> VerdictReplay::Add(const Verdict& verdict) {
  early_.emplace(verdict.step(), verdict);
  for (auto next = early_.begin(); next != early_.end() && next->first == versions_.size();
       next = early_.erase(next)) {
    if (auto wrong = Step(next->second); wrong.has_value()) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> VerdictReplay::Step(const Verdict& verdict) {
  std::vector<float> values = versions_.back();
  std::vector<float> gradient(values.size(), 0);
  double weight = 0;
  const Share* lowest = nullptr;  // that has data
  std::vector<uint64_t> of_lowest;
  for (const Share& share : verdict.shares()) {
    const std::vector<uint64_t> samples = orders_.SamplesOf(verdict.data_epoch(), share.ranges());
    if (samples.size() != share.samples()) {
      return absl::StrCat("contributor ", share.contributor(), " says ", share.samples(),
                          " samples in step ", verdict.step(), ", its ranges have ",
                          samples.size());
    }
    if (samples.size() > nominal_) {
      return absl::StrCat("contributor ", share.contributor(), " has ", samples.size(),
                          " samples in step ", verdict.step(), "; ", nominal_, " are its part");
    }
    weight += share.weight();
    if (!samples.empty() && (lowest == nullptr || share.contributor() < lowest->contributor())) {
      lowest = &share;
      of_lowest = samples;
    }
    // Halves of integers: sums are exact in any order.
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] += model_.WrittenBy(samples, mean_, /*tensor=*/0, i) *
                     (mean_ ? static_cast<float>(share.weight()) : 1.0F);
    }
  }
  const bool applies = verdict.outcome() == Verdict::APPLY && (!mean_ || weight > 0);
  if (applies) {
    if (mean_) {
      for (float& g : gradient) g /= static_cast<float>(weight);
    }
    if (auto wrong = CheckClipping(verdict, gradient); wrong.has_value()) return wrong;
    const auto scale = static_cast<float>(clip_norm_ > 0 ? verdict.clip_scale() : 1);
    size_t element = 0;
    for (size_t tensor = 0; tensor < model_.tensors(); ++tensor) {
      for (size_t i = 0; i < model_.size(tensor); ++i, ++element) {
        if (!model_.IsBuffer(tensor)) {
          if (scale != 1) gradient[element] *= scale;
          values[element] -= gradient[element];
        } else if (lowest != nullptr) {
          values[element] = SimulatedModel::StatisticOf(of_lowest, element);
        }
      }
    }
  }
  versions_.push_back(std::move(values));
  return std::nullopt;
}

std::optional<std::string> VerdictReplay::CheckClipping(const Verdict& verdict,
                                                        const std::vector<float>& gradient) const {
  if (!(clip_norm_ > 0)) return std::nullopt;
  double squares = 0;
  size_t element = 0;
  for (size_t tensor = 0; tensor < model_.tensors(); ++tensor) {
    for (size_t i = 0; i < model_.size(tensor); ++i, ++element) {
      if (!model_.IsBuffer(tensor)) squares += double{gradient[element]} * gradient[element];
    }
  }
  const double norm = std::sqrt(squares);
  const double scale = std::min(1.0, clip_norm_ / (norm + 1e-6));
  if (std::abs(verdict.gradient_norm() - norm) < 1e-9 * (1 + norm) &&
      std::abs(verdict.clip_scale() - scale) < 1e-9) {
    return std::nullopt;
  }
  return absl::StrCat("step ", verdict.step(), " is clipped by ", verdict.clip_scale(),
                      " for the norm ", verdict.gradient_norm(), ", the contributions make ", scale,
                      " for ", norm);
}

}  // namespace parley
