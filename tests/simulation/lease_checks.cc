#include "tests/simulation/lease_checks.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/forwarding_coordinator.h"

namespace parley {
namespace {

bool Has(const ClusterView& view, uint64_t member) {
  return std::any_of(view.members().begin(), view.members().end(),
                     [&](const Member& each) { return each.id() == member; });
}

}  // namespace

class LeaseChecks::Listener final : public ForwardingCoordinator<LeaseChecks::Listener> {
 public:
  Listener(LeaseChecks* checks, std::shared_ptr<CoordinatorClient> to,
           std::function<absl::Time()> clock)
      : checks_(checks), to_(std::move(to)), clock_(std::move(clock)) {}

  void Join(const JoinRequest& request, absl::Time deadline, Done<JoinReply> done) override {
    checks_->joined_.insert(request.address());
    to_->Join(request, deadline,
              [checks = checks_, now = clock_(),
               done = std::move(done)](absl::StatusOr<JoinReply> reply) {
                if (reply.ok()) checks->heard_[reply->member()] = now;
                done(std::move(reply));
              });
  }
  void Leave(const LeaveRequest& request, absl::Time deadline, Done<LeaveReply> done) override {
    checks_->left_.insert(request.header().member());
    to_->Leave(request, deadline, std::move(done));
  }
  template <class Request, class Reply>
  void Forward(CoordinatorMethod<Request, Reply> method, const Request& request,
               absl::Time deadline, Done<Reply> done) {
    constexpr bool is_operators = std::is_same_v<Request, GetStatusRequest> ||
                                  std::is_same_v<Request, AskForCheckpointRequest> ||
                                  std::is_same_v<Request, SetWorkersRequest> ||
                                  std::is_same_v<Request, DrainRequest> ||
                                  std::is_same_v<Request, StopRequest>;
    if constexpr (!is_operators) {
      checks_->heard_[request.header().member()] = clock_();
    }
    (to_.get()->*method)(request, deadline, std::move(done));
  }

 private:
  LeaseChecks* const checks_;
  const std::shared_ptr<CoordinatorClient> to_;
  const std::function<absl::Time()> clock_;
};

std::shared_ptr<CoordinatorClient> LeaseChecks::Listen(
    std::shared_ptr<CoordinatorClient> coordinator, std::function<absl::Time()> clock) {
  return std::make_shared<Listener>(this, std::move(coordinator), std::move(clock));
}

std::optional<std::string> LeaseChecks::AfterTick(const CoordinatorCore& core, absl::Time now) {
  const auto silent_for = [&](uint64_t member) {
    // One whose Join is not answered yet, because it is still being recorded, has just come.
    return now - heard_.emplace(member, now).first->second;
  };
  const ClusterView& view = core.view();
  std::optional<std::string> wrong;
  if (core.phase() == FAILED) {
    const bool is_new = !std::exchange(failed_, true);
    const bool somebody =
        std::any_of(view_.members().begin(), view_.members().end(),
                    [&](const Member& member) { return silent_for(member.id()) >= liveness_; });
    // Before there is a view only the calls tell who was there.
    const bool early = view_.members().empty();
    const bool for_silence = (core.cause().has_value() ? core.cause()->text() : std::string())
                                 .find("has not been heard of") != std::string::npos;
    if (is_new && for_silence && !somebody && !early) {
      wrong = absl::StrCat("the job failed for a silent member, but all were heard of within ",
                           absl::FormatDuration(liveness_));
    }
    return wrong;
  }
  if (core.phase() != TRAINING && core.phase() != PREPARING) return std::nullopt;
  if (view.view_epoch() != view_.view_epoch()) {
    for (const Member& former : view_.members()) {
      if (Has(view, former.id()) || silent_for(former.id()) >= liveness_) continue;
      // Who comes back from the same address is another process there.
      if (joined_.count(former.address()) != 0 || left_.count(former.id()) != 0) continue;
      wrong = absl::StrCat("member ", former.id(), " at ", former.address(),
                           " was lost after a silence of ",
                           absl::FormatDuration(silent_for(former.id())));
    }
    view_ = view;
  }
  joined_.clear();
  for (const Member& member : view.members()) {
    if (left_.count(member.id()) != 0 || silent_for(member.id()) < liveness_) continue;
    wrong = absl::StrCat("member ", member.id(), " at ", member.address(),
                         " takes part after a silence of ",
                         absl::FormatDuration(silent_for(member.id())));
  }
  return wrong;
}

}  // namespace parley
