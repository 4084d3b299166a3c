#include "tests/simulation/open_calls.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/job/consistency.h"

namespace parley {
namespace {

auto Key(const OpenCalls::State& state, const std::pair<uint64_t, uint64_t>& floor) {
  return std::make_tuple(state.ready, state.job_epoch, state.version, state.floor, floor);
}

}  // namespace

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
  ++counts_[{shard, verb}];
}

void OpenCalls::OnEnd(const std::string& shard, uint64_t call) {
  auto& open = open_[shard];
  const auto found = open.find(call);
  if (found == open.end()) return;
  --counts_[{shard, found->second.verb}];
  open.erase(found);
}

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
  if (open.empty()) return;
  const std::optional<State> state = look_(shard);
  if (!state.has_value()) return;
  Looked& looked = looked_[shard];
  const Looked now = {*state, floors_[shard], open.rbegin()->first};
  // With the same state only those are of interest that have come since.
  const auto begin = Key(now.state, now.floor) == Key(looked.state, looked.floor)
                         ? open.upper_bound(looked.newest)
                         : open.begin();
  looked = now;
  for (auto it = begin; it != open.end(); ++it) {
    const Call& call = it->second;
    if (call.verb != Verb::kPull || !MayAnswer(shard, *state, call.pull)) continue;
    broken_.push_back(absl::StrCat(shard, " has forgotten a parked Pull of ",
                                   call.pull.clock() == 0 || call.pull.named()
                                       ? absl::StrCat("version ", call.pull.version())
                                       : absl::StrCat("clock ", call.pull.clock()),
                                   ", which it can answer since version ", state->version));
  }
}

int OpenCalls::Count(const std::string& shard, Verb verb) const {
  const auto found = counts_.find({shard, verb});
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace parley
