#include "tests/simulation/open_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"

namespace parley {

OpenCalls::OpenCalls(const JobConfig& job,
                     std::function<std::optional<State>(const std::string&)> look)
    : bound_(ClockBound(job)), look_(std::move(look)) {}

void OpenCalls::OnAdvance(const std::string& shard, const AdvanceRequest& request) {
  auto& told = floors_[shard];
  told = std::max(told, {request.header().job_epoch(), request.floor()});
}

void OpenCalls::OnClose(const std::string&, const CloseRequest& request) {
  closed_ = std::max(closed_, {request.step(), request.attempt()});
}

void OpenCalls::OnBegin(const std::string& shard, uint64_t call, Verb verb,
                        const PullRequest* pull) {
  open_[shard][call] = {verb, pull == nullptr ? PullRequest() : *pull};
}

void OpenCalls::OnEnd(const std::string& shard, uint64_t call) { open_[shard].erase(call); }

bool OpenCalls::MayAnswer(const std::string& shard, const State& state,
                          const PullRequest& pull) const {
  if (!state.ready) return false;
  if (pull.clock() == 0 || pull.named()) return pull.version() <= state.version;
  if (!bound_.has_value()) return true;
  const auto told = floors_.find(shard);
  const bool is_told = told != floors_.end() && told->second.first == state.job_epoch;
  const uint64_t floor = state.floor.value_or(is_told ? told->second.second : 0);
  return floor + *bound_ + 1 >= pull.clock();
}

void OpenCalls::AfterCall(const std::string& shard) {
  const std::map<uint64_t, Call>& open = open_[shard];
  if (std::none_of(open.begin(), open.end(),
                   [](const auto& entry) { return entry.second.verb == Verb::kPull; })) {
    return;
  }
  const std::optional<State> state = look_(shard);
  if (!state.has_value()) return;
  for (const auto& [number, call] : open) {
    if (call.verb != Verb::kPull || !MayAnswer(shard, *state, call.pull)) continue;
    broken_.push_back(absl::StrCat(shard, " has forgotten a parked Pull of ",
                                   call.pull.clock() == 0 || call.pull.named()
                                       ? absl::StrCat("version ", call.pull.version())
                                       : absl::StrCat("clock ", call.pull.clock()),
                                   ", which it can answer since version ", state->version));
  }
}

int OpenCalls::Count(const std::string& shard, Verb verb) const {
  const auto found = open_.find(shard);
  if (found == open_.end()) return 0;
  return static_cast<int>(
      std::count_if(found->second.begin(), found->second.end(),
                    [&](const auto& entry) { return entry.second.verb == verb; }));
}

}  // namespace parley
