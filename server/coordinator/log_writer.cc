#include "server/coordinator/log_writer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/utc_text.h"
#include "server/coordinator/record_times.h"

namespace parley {

LogWriter::LogWriter(JobLog job_log, LockedCoordinator& coordinator, Options options)
    : options_(std::move(options)), job_log_(std::move(job_log)), coordinator_(coordinator) {
  // A call may come to this while the writer goes: then the timers run nothing any more.
  coordinator_.RecordWith([this, timers = options_.timers] {
    timers->RunAt(absl::InfinitePast(), [this] { Write(); });
  });
  options_.timers->RunAt(options_.timers->Now() + options_.liveness / 2, [this] { CheckRule(); });
}

LogWriter::~LogWriter() {
  coordinator_.Lose(absl::UnavailableError("the coordinator is about to go; try again"));
  options_.timers->Stop();
}

void LogWriter::TellIfSlow() {
  absl::Time since;
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = options_.timers->Now();
    if (told_slow_ || now - at_disk_since_ < options_.liveness) return;
    told_slow_ = true;
    since = at_disk_since_;
  }
  options_.log->Error(
      "the disk of the job's log does not answer; nobody can join, finish or be told of a change "
      "until it does; training goes on meanwhile, for stall_timeout at most: see to the disk",
      {{"since", FormatUtc(since + options_.wall_ahead())}});
}

void LogWriter::GoToDisk() {
  absl::MutexLock lock(&mu_);
  at_disk_since_ = options_.timers->Now();
  told_slow_ = false;
}

void LogWriter::ComeBack() {
  absl::Time since;
  {
    absl::MutexLock lock(&mu_);
    since = std::exchange(at_disk_since_, absl::InfiniteFuture());
    if (!told_slow_) return;
  }
  options_.log->Info(
      "the disk of the job's log has answered",
      {{"seconds", absl::StrCat(absl::ToInt64Seconds(options_.timers->Now() - since))}});
}

void LogWriter::Write() {
  GoToDisk();
  const absl::Status status = coordinator_.Record([this](const CoordinatorState& state) {
    if (options_.before_record) {
      if (absl::Status status = options_.before_record(state); !status.ok()) return status;
    }
    const absl::Duration ahead = options_.wall_ahead();
    return job_log_.Append(ToRecordTimes(state, ahead), options_.timers->Now() + ahead);
  });
  ComeBack();
  if (status.ok()) return Recover();
  Handle(status);
  if (absl::IsAborted(status)) return;
  options_.timers->RunAt(options_.timers->Now() + options_.liveness / 20, [this] { Write(); });
}

void LogWriter::CheckRule() {
  GoToDisk();
  const absl::Status status = job_log_.CheckStillRules();
  if (status.ok() && options_.on_still_ruling) options_.on_still_ruling();
  ComeBack();
  if (status.ok()) {
    Recover();
  } else {
    Handle(status);
  }
  if (absl::IsAborted(status)) return;
  options_.timers->RunAt(options_.timers->Now() + options_.liveness / 2, [this] { CheckRule(); });
}

void LogWriter::Recover() {
  if (failing_since_ == absl::InfiniteFuture()) return;
  const absl::Duration failed = options_.timers->Now() - failing_since_;
  options_.log->Info("the job's log can be read and written again",
                     {{"seconds", absl::StrCat(absl::ToInt64Seconds(failed))}});
  failing_since_ = absl::InfiniteFuture();
}

void LogWriter::Handle(const absl::Status& error) {
  if (absl::IsAborted(error)) return coordinator_.Lose(error);
  if (failing_since_ != absl::InfiniteFuture()) return;  // said already
  failing_since_ = options_.timers->Now();
  options_.log->Error(
      "the job's log cannot be read or written; nobody can join, finish or be told of a change "
      "until it can; training goes on, and it is tried again and again: free or repair the disk",
      {{"error", std::string(error.message())}});
}

}  // namespace parley
