#include "tests/simulation/clocked_checks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/simulation/pushed_bytes.h"

namespace parley {

void ClockedChecks::OnPush(const std::string& shard, const PushRequest& request,
                           const PushReply& reply) {
  const uint64_t job_epoch = request.header().job_epoch();
  const bool is_current = is_current_(job_epoch);
  for (int i = 0; i < request.slices_size(); ++i) {
    const SliceData& slice = request.slices(i);
    if (reply.outcomes(i) == DUPLICATE) ++happened_["push doubled"];
    if (reply.outcomes(i) != ADDED) continue;
    uint64_t& newest = epochs_[shard];
    if (job_epoch < newest) {
      broken_.push_back(absl::StrCat(shard, " applied a push of job_epoch ", job_epoch,
                                     " after one of job_epoch ", newest));
    }
    newest = std::max(newest, job_epoch);
    // Where the shard has not heard yet that the job goes back.
    if (!is_current) continue;
    const PushName name{job_epoch, slice.slice(), request.contributor(), request.attempt(),
                        request.step()};
    if (!names_.insert(name).second) {
      broken_.push_back(absl::StrCat(shard, " applied slice ", slice.slice(), " of contributor ",
                                     request.contributor(), " clock ", request.step(), " twice"));
    }
    const bool buffer = model_.IsBuffer(slice.slice());
    if (buffer && request.contributor() != lowest_(shard)) continue;
    const auto [at, is_new] = sums_[shard].try_emplace(slice.slice());
    std::vector<float>& sum = at->second;
    if (is_new) sum = sums_[kBefore][slice.slice()];
    const std::string bytes = BytesOf(slice, model_);
    sum.resize(bytes.size() / sizeof(float), 0);
    for (size_t element = 0; element < sum.size(); ++element) {
      float value = 0;
      std::memcpy(&value, bytes.data() + element * sizeof(float), sizeof(float));
      sum[element] = buffer ? value : sum[element] + value;
    }
  }
}

void ClockedChecks::OnAdvance(const std::string& shard, const AdvanceRequest& request) {
  if (!is_current_(request.header().job_epoch())) return;
  if (request.barrier() == 0 || !told_.emplace(request.barrier(), shard).second) return;
  // The step leader has named the version before it told anybody: it gets no Advance of its own.
  const bool first = named_.count(request.barrier()) == 0;
  std::map<std::string, Sums>& named = named_[request.barrier()];
  if (first) {
    named = sums_;
    names_at_[request.barrier()] = names_;
  }
  named[shard] = sums_[shard];
  ++happened_["barrier"];
}

void ClockedChecks::RollBack(uint64_t version) {
  named_.erase(named_.upper_bound(version), named_.end());
  names_at_.erase(names_at_.upper_bound(version), names_at_.end());
  told_.erase(told_.lower_bound({version + 1, ""}), told_.end());
  // Shards may have other slices, and other names, than before.
  Sums before;
  for (const auto& [shard, sums] : named_[version]) {
    for (const auto& [slice, sum] : sums) {
      if (!sum.empty()) before[slice] = sum;
    }
  }
  sums_.clear();
  sums_[kBefore] = std::move(before);
  names_ = names_at_[version];
}

std::optional<std::vector<float>> ClockedChecks::NamedValues(uint64_t version) const {
  const auto named = named_.find(version);
  if (named == named_.end()) return std::nullopt;
  std::vector<float> all;
  for (size_t tensor = 0; tensor < model_.tensors(); ++tensor) {
    // One slice for each tensor, with the same number: they are small.
    std::vector<float> values(model_.size(tensor), 0);
    for (const auto& [shard, sums] : named->second) {
      const auto sum = sums.find(static_cast<uint32_t>(tensor));
      if (sum != sums.end() && !sum->second.empty()) values = sum->second;
    }
    for (const float value : values) all.push_back(model_.IsBuffer(tensor) ? value : 0 - value);
  }
  return all;
}

std::optional<std::string> ClockedChecks::CheckNamed(const Session& session,
                                                     const std::vector<float>& expected) const {
  const auto named = NamedValues(session.version());
  if (!named.has_value()) {
    return absl::StrCat("version ", session.version(), ", which no barrier has named");
  }
  size_t element = 0;
  for (size_t tensor = 0; tensor < model_.tensors(); ++tensor) {
    for (size_t i = 0; i < model_.size(tensor); ++i, ++element) {
      float value = 0;
      std::memcpy(&value, session.parameter(tensor).data() + i * sizeof(float), sizeof(float));
      const float applied = (*named)[element];
      if (value != applied) {
        return absl::StrCat(value, " for element ", element, " of version ", session.version(),
                            ", the applied pushes make ", applied);
      }
      if (!expected.empty() && !model_.IsBuffer(tensor) && value != expected[element]) {
        return absl::StrCat(value, " for element ", element, " of version ", session.version(),
                            ", the verdicts make ", expected[element]);
      }
    }
  }
  return std::nullopt;
}

uint64_t ClockedChecks::AppliedBy(const std::map<uint64_t, Verdict>& verdicts) const {
  uint64_t applied = 0;
  for (const auto& [step, verdict] : verdicts) applied += model_.tensors() * verdict.shares_size();
  return applied;
}

}  // namespace parley
