#include "server/coordinator/history.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/evaluation_figures.h"
#include "server/coordinator/first_cause.h"

namespace parley {
namespace {

using Json = nlohmann::ordered_json;

const char* KindName(CourseEvent::Kind kind) {
  switch (kind) {
    case CourseEvent::Kind::kStart:
      return "start";
    case CourseEvent::Kind::kView:
      return "view";
    case CourseEvent::Kind::kStep:
      return "step";
    case CourseEvent::Kind::kEvaluation:
      return "evaluation";
    case CourseEvent::Kind::kCheckpoint:
      return "checkpoint";
    case CourseEvent::Kind::kEnd:
      return "end";
  }
  return "";
}

void AddEvaluation(Json& line, const Evaluation& evaluation) {
  const EvaluationFigures figures = FiguresOf(evaluation);
  line["epoch"] = evaluation.epoch();
  line["test_samples"] = evaluation.samples();
  line["loss"] = figures.loss;
  if (figures.accuracy) line["accuracy"] = *figures.accuracy;
  if (figures.top5) line["top5"] = *figures.top5;
  if (figures.perplexity) line["perplexity"] = *figures.perplexity;
}

void AddCheckpoint(Json& line, const CourseEvent& event) {
  line["outcome"] = event.is_whole ? "whole" : "failed";
  if (event.is_whole) {
    line["directory"] = event.at.checkpoint;
    line["seconds"] = absl::ToDoubleSeconds(event.at.checkpoint_duration);
  } else {
    line["error"] = event.at.checkpoint_error;
  }
}

void AddEnd(Json& line, const CourseNumbers& at) {
  const bool preempted = at.cause && at.cause->preempted();
  line["outcome"] = at.phase == FINISHED ? "finished" : preempted ? "preempted" : "failed";
  if (at.cause) line["cause"] = at.cause->text();
  line["checkpoint"] = at.checkpoint;
}

}  // namespace

std::string HistoryLine(const CourseEvent& event) {
  const CourseNumbers& at = event.at;
  Json line;
  line["time"] = FormatUtc(event.time);
  line["kind"] = KindName(event.kind);
  line["generation"] = at.generation;
  line["job_epoch"] = at.job_epoch;
  line["view_epoch"] = at.view_epoch;
  line["step"] = at.step;
  line["data_epoch"] = at.data_epoch;
  line["samples"] = at.samples;
  line["workers"] = at.workers;
  switch (event.kind) {
    case CourseEvent::Kind::kStart:
      line["goes_on"] = event.goes_on;
      break;
    case CourseEvent::Kind::kView:
      line["went_back"] = event.went_back;
      if (event.went_back) line["steps_lost"] = event.steps_lost;
      line["start_step"] = at.start_step;
      line["start_from"] = at.start_from;
      break;
    case CourseEvent::Kind::kStep:
      line["loss"] = at.loss;
      line["samples_per_second"] = at.samples_per_second;
      break;
    case CourseEvent::Kind::kEvaluation:
      line["step"] = event.evaluation.version();
      AddEvaluation(line, event.evaluation);
      break;
    case CourseEvent::Kind::kCheckpoint:
      if (event.is_whole) line["step"] = at.checkpoint_step;
      AddCheckpoint(line, event);
      break;
    case CourseEvent::Kind::kEnd:
      AddEnd(line, at);
      break;
  }
  // What a member says of itself, and a folder's name, need not be UTF-8.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status History::Append(const CourseEvent& event) {
  std::string line = absl::StrCat(HistoryLine(event), "\n");
  if (!file_) {
    auto file = AppendedFile::Open(path_);
    if (!file.ok()) return file.status();
    const auto torn = file->EndsOtherThan('\n');
    if (!torn.ok()) return torn.status();
    if (*torn) line = absl::StrCat("\n", line);
    file_ = *std::move(file);
  }
  absl::Status appended = file_->Append(line);
  if (!appended.ok()) file_.reset();  // opened again, it tells how much of the line is there
  return appended;
}

void History::Add(const std::vector<CourseEvent>& events) {
  for (const CourseEvent& event : events) {
    const absl::Status added = Append(event);
    if (!added.ok() && !failing_) {
      log_.Warning("the job's history lacks lines until its file can be written again",
                   {{"error", std::string(added.message())}});
    }
    failing_ = !added.ok();
  }
}

}  // namespace parley
