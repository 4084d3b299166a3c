#include "server/coordinator/in_process.h"

#include <utility>

namespace parley {

InProcessCoordinator::InProcessCoordinator(CoordinatorCore::Options options, Clock clock)
    : clock_(std::move(clock)), core_(std::move(options)) {}

template <class Request, class Reply>
void InProcessCoordinator::Call(Method<Request, Reply> method, const Request& request,
                                Done<Reply> done) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  // The caller's own answer goes last: who is woken by it sees the others woken.
  absl::StatusOr<Reply> reply = (core_.*method)(request, clock_(), replies);
  replies.Add<Reply>(std::move(done), std::move(reply));
}

void InProcessCoordinator::Join(const JoinRequest& request, absl::Time, Done<JoinReply> done) {
  Call(&CoordinatorCore::Join, request, std::move(done));
}

void InProcessCoordinator::Heartbeat(const HeartbeatRequest& request, absl::Time,
                                     Done<HeartbeatReply> done) {
  Call(&CoordinatorCore::Heartbeat, request, std::move(done));
}

void InProcessCoordinator::Watch(const WatchRequest& request, absl::Time deadline,
                                 Done<WatchReply> done) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  core_.Watch(request, {clock_(), deadline}, replies, std::move(done));
}

void InProcessCoordinator::RegisterModel(const RegisterModelRequest& request, absl::Time,
                                         Done<RegisterModelReply> done) {
  Call(&CoordinatorCore::RegisterModel, request, std::move(done));
}

void InProcessCoordinator::ReportReady(const ReportReadyRequest& request, absl::Time,
                                       Done<ReportReadyReply> done) {
  Call(&CoordinatorCore::ReportReady, request, std::move(done));
}

void InProcessCoordinator::ReportVerdicts(const ReportVerdictsRequest& request, absl::Time,
                                          Done<ReportVerdictsReply> done) {
  Call(&CoordinatorCore::ReportVerdicts, request, std::move(done));
}

void InProcessCoordinator::ReportEvaluation(const ReportEvaluationRequest& request, absl::Time,
                                            Done<ReportEvaluationReply> done) {
  Call(&CoordinatorCore::ReportEvaluation, request, std::move(done));
}

void InProcessCoordinator::Finish(const FinishRequest& request, absl::Time,
                                  Done<FinishReply> done) {
  Call(&CoordinatorCore::Finish, request, std::move(done));
}

void InProcessCoordinator::ReportCheckpointFile(const ReportCheckpointFileRequest& request,
                                                absl::Time, Done<ReportCheckpointFileReply> done) {
  Call(&CoordinatorCore::ReportCheckpointFile, request, std::move(done));
}

void InProcessCoordinator::Fail(const FailRequest& request, absl::Time, Done<FailReply> done) {
  Call(&CoordinatorCore::Fail, request, std::move(done));
}

void InProcessCoordinator::Leave(const LeaveRequest& request, absl::Time, Done<LeaveReply> done) {
  Call(&CoordinatorCore::Leave, request, std::move(done));
}

void InProcessCoordinator::GetStatus(const GetStatusRequest& request, absl::Time,
                                     Done<GetStatusReply> done) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  replies.Add<GetStatusReply>(std::move(done), core_.GetStatus(request, clock_()));
}

void InProcessCoordinator::Open(uint64_t generation, const std::string& address) {
  absl::MutexLock lock(&mu_);
  core_.Open(generation, address, clock_());
}

void InProcessCoordinator::Tick() {
  Replies replies;
  absl::MutexLock lock(&mu_);
  core_.Tick(clock_(), replies);
}

void InProcessCoordinator::FailItself(const std::string& reason, bool preempted) {
  Replies replies;
  absl::MutexLock lock(&mu_);
  core_.FailItself(reason, preempted, clock_(), replies);
}

void InProcessCoordinator::Close() {
  Replies replies;
  absl::MutexLock lock(&mu_);
  core_.Close(replies);
}

void InProcessCoordinator::DoFileWork(const FileWorker& worker) {
  while (true) {
    std::vector<FileWork> due;
    {
      absl::MutexLock lock(&mu_);
      due = core_.TakeFileWork();
    }
    if (due.empty()) return;
    for (const FileWork& work : due) {
      const absl::Status result = worker(work);
      Replies replies;
      absl::MutexLock lock(&mu_);
      core_.FileWorkDone(work, result, clock_(), replies);
    }
  }
}

bool InProcessCoordinator::Changed() const {
  return core_.has_file_work() || core_.revision() != seen_revision_ ||
         core_.membership_revision() != seen_members_;
}

void InProcessCoordinator::AwaitChange(absl::Duration limit) {
  absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(this, &InProcessCoordinator::Changed), limit);
  seen_revision_ = core_.revision();
  seen_members_ = core_.membership_revision();
}

}  // namespace parley
