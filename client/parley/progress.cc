#include "client/parley/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/parley/units.h"
#include "common/evaluation_figures.h"

namespace parley {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(30);
constexpr int kBar = 24;
constexpr int kSmallestBar = 4;

double Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void TimeLeft::See(const GetStatusReply& status, absl::Time now) {
  if (status.phase() != TRAINING || status.step() == 0) return;
  total_ = status.total_steps();
  if (!points_.empty() && points_.back().step == status.step()) return;
  points_.push_back({now, status.step()});
  while (points_.size() > 2 && now - points_[1].time >= kWindow) points_.erase(points_.begin());
}

std::optional<absl::Duration> TimeLeft::Get() const {
  if (points_.size() < 2 || total_ == 0) return std::nullopt;
  const Point& first = points_.front();
  const Point& last = points_.back();
  if (last.step <= first.step) return std::nullopt;
  const uint64_t left = total_ - std::min(total_, last.step);
  return (last.time - first.time) / static_cast<double>(last.step - first.step) *
         static_cast<double>(left);
}

std::string ProgressLine(const GetStatusReply& status, std::optional<absl::Duration> left) {
  switch (status.phase()) {
    case GATHERING:
    case PREPARING:
      return absl::StrCat(
          status.phase() == GATHERING ? "members join" : "shards prepare",
          status.what_is_missing().empty() ? "" : absl::StrCat(": ", status.what_is_missing()));
    case SAVING:
      return "writing the checkpoint";
    case FINISHED:
      return "finished";
    case FAILED:
      return "failed";
    default:
      break;
  }
  std::string line;
  if (status.epochs() != 0) {
    // The last decided step may have used up its epoch; the count still begins at 1.
    absl::StrAppend(&line, "epoch ", std::min(status.data_epoch() + 1, status.epochs()), "/",
                    status.epochs(), "  ");
  }
  absl::StrAppend(&line, "step ", status.step());
  if (status.total_steps() != 0) absl::StrAppend(&line, "/", status.total_steps());
  if (status.step() != 0) {
    absl::StrAppendFormat(&line, "  loss %.4f  %.0f samples/s", status.loss(),
                          status.samples_per_second());
  }
  if (left) absl::StrAppend(&line, "  ", DurationText(*left), " left");
  return line;
}

std::string ProgressBar(const GetStatusReply& status, std::optional<absl::Duration> left,
                        int columns) {
  std::string text = ProgressLine(status, left);
  if (status.total_steps() != 0) {
    const double share = std::min(1.0, Ratio(status.step(), status.total_steps()));
    text = absl::StrFormat("%3.0f%%  %s", std::floor(share * 100), text);
    // The numbers say more than the bar: it takes the room that they leave.
    const int room = std::min(kBar, columns - static_cast<int>(text.size()) - 3);
    if (room >= kSmallestBar) {
      const int filled = static_cast<int>(std::floor(share * room));
      text =
          absl::StrCat("[", std::string(filled, '#'), std::string(room - filled, '-'), "] ", text);
    }
  }
  if (text.size() > static_cast<size_t>(std::max(columns, 0))) text.resize(std::max(columns, 0));
  return text;
}

std::string EvaluationLine(const Evaluation& evaluation) {
  std::string line =
      absl::StrFormat("epoch %d  step %d  ", evaluation.epoch(), evaluation.version());
  const EvaluationFigures figures = FiguresOf(evaluation);
  if (figures.accuracy) absl::StrAppendFormat(&line, "accuracy %.4f  ", *figures.accuracy);
  if (figures.top5) absl::StrAppendFormat(&line, "top-5 %.4f  ", *figures.top5);
  if (figures.perplexity) absl::StrAppendFormat(&line, "perplexity %.2f  ", *figures.perplexity);
  absl::StrAppendFormat(&line, "loss %.4f", figures.loss);
  return line;
}

uint32_t AbsentWorkers(const GetStatusReply& status) {
  const bool has_steps = (status.phase() == PREPARING || status.phase() == TRAINING) &&
                         status.phase_seconds().empty();  // nobody has finished
  uint32_t here = 0;
  for (const MemberStatus& member : status.members()) {
    if (member.member().role() == WORKER && !member.left() && !member.drained()) ++here;
  }
  return has_steps && here < status.wanted_workers() ? status.wanted_workers() - here : 0;
}

std::string WantedText(const GetStatusReply& status) {
  if (status.wanted_workers() == 0) return "";
  const uint32_t absent = AbsentWorkers(status);
  return absl::StrCat("workers: ", status.wanted_workers(),
                      absent == 0 ? "" : absl::StrCat(", ", absent, " of them not here"));
}

}  // namespace parley
