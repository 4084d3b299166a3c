#include "tests/simulation/contribution_checks.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"
#include "tests/simulation/pushed_bytes.h"

namespace parley {

ContributionChecks::ContributionChecks(const JobConfig& job, SimulatedModel model, uint64_t samples,
                                       std::function<bool(uint32_t, uint32_t)> takes_part,
                                       std::function<bool(uint64_t)> is_current)
    : model_(std::move(model)),
      bound_(ClockBound(job)),
      takes_part_(std::move(takes_part)),
      is_current_(std::move(is_current)),
      orders_(job, samples) {}

void ContributionChecks::RollBack() {
  applied_.clear();
  leased_.clear();
  checked_.clear();
}

void ContributionChecks::OnPush(const std::string&, const PushRequest& request,
                                const PushReply& reply) {
  if (!is_current_(request.header().job_epoch())) return;
  auto& slices = applied_[{request.contributor(), request.attempt(), request.step()}];
  for (int i = 0; i < request.slices_size(); ++i) {
    if (reply.outcomes(i) == ADDED)
      slices[request.slices(i).slice()] = BytesOf(request.slices(i), model_);
  }
}

void ContributionChecks::OnComplete(const std::string&, const CompleteRequest& request,
                                    const CompleteReply& reply) {
  if (!is_current_(request.header().job_epoch())) return;
  const uint32_t contributor = request.share().contributor();
  const Verdict& verdict = reply.verdict();
  if (verdict.outcome() == Verdict::APPLY) {
    Check({contributor, request.attempt(), request.step()}, verdict);
  }
  Follow(contributor, request.attempt(), reply.lease());
}

void ContributionChecks::OnEnter(const std::string&, const EnterRequest& request,
                                 const EnterReply& reply) {
  if (!is_current_(request.header().job_epoch())) return;
  Follow(request.contributor(), reply.attempt(), reply.lease());
}

void ContributionChecks::Follow(uint32_t contributor, uint32_t attempt, const Lease& lease) {
  if (lease.clock() == 0) {
    leased_.erase(contributor);
  } else {
    leased_[contributor] = {attempt, lease.clock()};
  }
}

void ContributionChecks::Check(const Name& name, const Verdict& verdict) {
  const auto& [contributor, attempt, clock] = name;
  const std::string who =
      absl::StrCat("contributor ", contributor, " (attempt ", attempt, ") clock ", clock);
  if (verdict.shares_size() != 1 || verdict.shares(0).contributor() != contributor) {
    broken_.push_back(absl::StrCat("the verdict on ", who, " names another contributor"));
    return;
  }
  if (std::exchange(checked_[name], true)) return;  // a repetition
  const std::vector<uint64_t> samples =
      orders_.SamplesOf(verdict.data_epoch(), verdict.shares(0).ranges());
  const auto& slices = applied_[name];
  size_t element = 0;
  for (size_t tensor = 0; tensor < model_.tensors(); ++tensor) {
    // One slice for each tensor, with the same number: they are small.
    const auto found = slices.find(static_cast<uint32_t>(tensor));
    if (found == slices.end()) {
      broken_.push_back(absl::StrCat("the verdict names ", who, ", but no shard applied slice ",
                                     tensor, " of it"));
      return;
    }
    for (size_t i = 0; i < model_.size(tensor); ++i, ++element) {
      float value = 0;
      std::memcpy(&value, found->second.data() + i * sizeof(float), sizeof(float));
      if (value == model_.WrittenBy(samples, /*mean=*/false, tensor, element)) continue;
      broken_.push_back(absl::StrCat("slice ", tensor, " of ", who,
                                     " is not of the samples that the verdict names"));
      return;
    }
  }
}

void ContributionChecks::OnPull(const std::string& shard, const PullRequest& request) {
  if (!bound_.has_value() || request.clock() == 0 || request.named()) return;
  if (!is_current_(request.header().job_epoch())) return;
  for (const auto& [contributor, lease] : leased_) {
    if (contributor == request.contributor() || lease.clock + *bound_ + 1 > request.clock()) {
      continue;
    }
    if (!takes_part_(contributor, lease.attempt)) continue;
    const auto applied = applied_.find({contributor, lease.attempt, lease.clock});
    for (const uint32_t slice : request.slices()) {
      if (applied != applied_.end() && applied->second.count(slice) != 0) continue;
      broken_.push_back(absl::StrCat(shard, " let contributor ", request.contributor(),
                                     " read slice ", slice, " for clock ", request.clock(),
                                     " without the update of contributor ", contributor, " clock ",
                                     lease.clock, ", where the bound is ", *bound_));
      return;
    }
  }
}

}  // namespace parley
