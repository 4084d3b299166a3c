#include "common/job/job_source.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/job/parse_error.h"

namespace parley {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Whether one of the paths is the other one or leads to it: "cluster" and "cluster.shards".
bool Related(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.substr(0, a.size()) == a && (b.size() == a.size() || b[a.size()] == '.');
}

// A string may be given as it is: it is not worth a second pair of quotes on a command line.
bool IsBareString(const FieldDescriptor& field, const std::string& value) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
         (value.empty() || (value.front() != '"' && value.front() != '\''));
}

// What is wrong with the value, and of which field; empty: nothing.
std::string SetValue(Message& message, const FieldDescriptor& field, const std::string& path,
                     const std::string& value) {
  message.GetReflection()->ClearField(&message, &field);
  if (IsBareString(field, value)) {
    message.GetReflection()->SetString(&message, &field, value);
    return "";
  }
  FirstParseError error(value, {.field = &field, .path = path});
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFieldValueFromString(value, &field, &message)) return "";
  if (field.message_type() != nullptr && !error.text().empty()) return error.text();
  return absl::StrCat(path, ": takes ", ValueText(field), ", not '", value, "'");
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobSource>> JobSource::Parse(const std::string& path,
                                                            const std::string& text) {
  std::unique_ptr<JobSource> source(new JobSource(path));
  FirstParseError error(text, {.type = JobConfig::descriptor()});
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&source->places_);
  if (!parser.ParseFromString(text, &source->job_)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", error.line(), ": ", error.text()));
  }
  return source;
}

absl::Status JobSource::Override(const std::string& assignment) {
  const auto error = [&](const auto&... problem) {
    return absl::InvalidArgumentError(absl::StrCat("--set ", assignment, ": ", problem...));
  };
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return error("is not of the form FIELD=VALUE, such as cluster.workers=4");
  }
  const std::string path = assignment.substr(0, equals);
  Message* message = &job_;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  std::string here;  // the path so far
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&here, i > 0 ? "." : "", names[i]);
    const Descriptor& type = *message->GetDescriptor();
    const FieldDescriptor* field = type.FindFieldByName(names[i]);
    if (field == nullptr) {
      return error(here, ": there is no such field here; there are: ", FieldNames(type));
    }
    if (field->is_repeated()) {
      return error(here, ": is a list, which can be changed in the job file only");
    }
    if (i + 1 == names.size()) {
      const std::string problem = SetValue(*message, *field, here, assignment.substr(equals + 1));
      if (!problem.empty()) return error(problem);
    } else if (field->message_type() != nullptr) {
      message = message->GetReflection()->MutableMessage(message, field);
    } else {
      return error(here, ": has no fields");
    }
  }
  // Exactly one of these is set in a job, so that the other one is what the user wants to replace.
  if (path == "steps") job_.clear_epochs();
  if (path == "epochs") job_.clear_steps();
  overrides_.push_back(assignment);
  return absl::OkStatus();
}

absl::Status JobSource::Error(std::string_view field, std::string_view problem) const {
  return absl::InvalidArgumentError(
      absl::StrCat(Where(field), ": ", View(field), ": ", View(problem)));
}

std::string JobSource::Where(std::string_view field) const {
  for (auto override = overrides_.rbegin(); override != overrides_.rend(); ++override) {
    if (Related(std::string_view(*override).substr(0, override->find('=')), field)) {
      return absl::StrCat("--set ", *override);
    }
  }
  int line = -1;
  const TextFormat::ParseInfoTree* places = &places_;
  const Descriptor* type = job_.GetDescriptor();
  for (const absl::string_view part : absl::StrSplit(View(field), '.')) {
    const std::pair<absl::string_view, absl::string_view> name = absl::StrSplit(part, '[');
    int index = -1;
    if (!name.second.empty() &&
        !absl::SimpleAtoi(name.second.substr(0, name.second.size() - 1), &index)) {
      break;
    }
    const FieldDescriptor* found = type->FindFieldByName(std::string(name.first));
    if (found == nullptr) break;
    // protobuf ends the process where an index is missing, or is one too many. A list as a whole is
    // where its first element is.
    if (found->is_repeated() != (index >= 0)) {
      if (!found->is_repeated()) break;
      index = 0;
    }
    const int at = places->GetLocation(found, index).line;
    if (at < 0) break;
    line = at;
    type = found->message_type();
    if (type == nullptr) break;
    places = places->GetTreeForNested(found, index);
    if (places == nullptr) break;
  }
  return line < 0 ? path_ : absl::StrCat(path_, ":", line + 1);
}

}  // namespace parley
