#include "client/parley/progress_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace parley {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(200);
constexpr absl::Duration kLine = absl::Seconds(5);

}  // namespace

void ProgressDisplay::Show(const GetStatusReply& status, absl::Time now) {
  left_.See(status, now);
  for (; evaluations_ < status.evaluations_size(); ++evaluations_) {
    Say(EvaluationLine(status.evaluations(evaluations_)));
  }
  const bool phase_changed = status.phase() != phase_;
  phase_ = status.phase();
  if (terminal_) {
    if (!phase_changed && now - shown_at_ < kRedraw) return;
    std::fprintf(out_, "\r%s\x1b[K", ProgressBar(status, left_.Get(), Columns()).c_str());
    line_open_ = true;
  } else {
    // What is missing changes with every member that joins: that is no news in a log.
    const bool trains = status.phase() == TRAINING && status.step() != step_;
    if (!phase_changed && !(trains && now - shown_at_ >= kLine)) return;
    std::fprintf(out_, "%s\n", ProgressLine(status, left_.Get()).c_str());
  }
  std::fflush(out_);
  step_ = status.step();
  shown_at_ = now;
}

void ProgressDisplay::Say(const std::string& line) {
  if (line_open_) std::fputs("\r\x1b[K", out_);
  line_open_ = false;
  shown_at_ = absl::InfinitePast();
  std::fprintf(out_, "%s\n", line.c_str());
  std::fflush(out_);
}

void ProgressDisplay::End() {
  if (line_open_) std::fputc('\n', out_);
  line_open_ = false;
  std::fflush(out_);
}

int ProgressDisplay::Columns() const {
  winsize size = {};
  if (ioctl(fileno(out_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col - 1;  // some terminals wrap after the last one
}

}  // namespace parley
