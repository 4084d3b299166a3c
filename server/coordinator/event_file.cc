#include "server/coordinator/event_file.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/crc32c.h"
#include "common/evaluation_figures.h"
#include "common/host_name.h"

namespace parley {
namespace {

constexpr char kVersion[] = "brain.Event:2";
constexpr int kMostOfASecond = 1000;  // files that begin in one second

void AppendLittleEndian(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> 8 * i));
}

// So that the sum of bytes that hold sums is no constant.
uint32_t Masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8U; }

void AddScalar(tensorboard::Event& event, const char* tag, double value) {
  tensorboard::Summary::Value& scalar = *event.mutable_summary()->add_value();
  scalar.set_tag(tag);
  scalar.set_simple_value(static_cast<float>(value));
}

void AddEvaluation(tensorboard::Event& event, const Evaluation& evaluation) {
  const EvaluationFigures figures = FiguresOf(evaluation);
  AddScalar(event, "test/loss", figures.loss);
  if (figures.accuracy) AddScalar(event, "test/accuracy", *figures.accuracy);
  if (figures.top5) AddScalar(event, "test/top5", *figures.top5);
  if (figures.perplexity) AddScalar(event, "test/perplexity", *figures.perplexity);
}

double UnixSeconds(absl::Time time) { return static_cast<double>(absl::ToUnixMicros(time)) / 1e6; }

}  // namespace

std::string TfRecord(std::string_view bytes) {
  std::string record;
  AppendLittleEndian(record, bytes.size(), 8);
  AppendLittleEndian(record, Masked(Crc32c(record)), 4);
  record.append(bytes);
  AppendLittleEndian(record, Masked(Crc32c(bytes)), 4);
  return record;
}

std::optional<tensorboard::Event> ToTensorboard(const CourseEvent& event) {
  tensorboard::Event shown;
  shown.set_wall_time(UnixSeconds(event.time));
  switch (event.kind) {
    case CourseEvent::Kind::kStep:
      shown.set_step(static_cast<int64_t>(event.at.step));
      AddScalar(shown, "train/loss", event.at.loss);
      AddScalar(shown, "train/samples_per_second", event.at.samples_per_second);
      AddScalar(shown, "workers", static_cast<double>(event.at.workers));
      return shown;
    case CourseEvent::Kind::kEvaluation:
      shown.set_step(static_cast<int64_t>(event.evaluation.version()));
      AddEvaluation(shown, event.evaluation);
      return shown;
    case CourseEvent::Kind::kView:
      if (!event.went_back) return std::nullopt;
      shown.set_step(static_cast<int64_t>(event.at.start_step + 1));
      shown.mutable_session_log()->set_status(tensorboard::SessionLog::START);
      return shown;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<AppendedFile> EventFile::Create(absl::Time now) {
  if (absl::Status made = files_.CreateDirectories(folder_); !made.ok()) return made;
  const std::string path = absl::StrFormat("%s/events.out.tfevents.%010d.%s", folder_,
                                           absl::ToUnixSeconds(now), HostName());
  auto file = AppendedFile::Create(path);
  for (int i = 1; absl::IsAlreadyExists(file.status()) && i < kMostOfASecond; ++i) {
    file = AppendedFile::Create(absl::StrFormat("%s.%03d", path, i));
  }
  return file;
}

absl::Status EventFile::Append(const std::string& records, absl::Time now) {
  if (file_) {
    absl::Status appended = file_->Append(records);
    if (!appended.ok()) file_.reset();
    return appended;
  }
  auto file = Create(now);
  if (!file.ok()) return file.status();
  tensorboard::Event first;
  first.set_wall_time(UnixSeconds(now));
  first.set_file_version(kVersion);
  absl::Status appended = file->Append(absl::StrCat(TfRecord(first.SerializeAsString()), records));
  if (appended.ok()) {
    file_ = *std::move(file);
  } else {
    files_.Remove(file->path()).IgnoreError();  // an empty one is made for each try otherwise
  }
  return appended;
}

void EventFile::Add(const std::vector<CourseEvent>& events) {
  std::string records;
  for (const CourseEvent& event : events) {
    const auto shown = ToTensorboard(event);
    if (shown) records += TfRecord(shown->SerializeAsString());
  }
  if (records.empty()) return;
  const absl::Status added = Append(records, events.front().time);
  if (!added.ok() && !failing_) {
    log_.Warning("TensorBoard's files lack points until they can be written again",
                 {{"error", std::string(added.message())}});
  }
  failing_ = !added.ok();
}

}  // namespace parley
