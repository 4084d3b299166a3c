#include "common/job/job_fields.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace parley {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// index: of a list; -1 for a single value.
std::string TextOf(const Message& message, const FieldDescriptor& field, int index) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    const Reflection& reflection = *message.GetReflection();
    return index < 0 ? reflection.GetString(message, &field)
                     : reflection.GetRepeatedString(message, &field, index);
  }
  std::string text;
  TextFormat::PrintFieldValueToString(message, &field, index, &text);
  return text;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FieldTexts(const JobConfig& job, std::string_view path) {
  const auto wrong = [&](std::string_view problem) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::string_view(path.data(), path.size()), ": ",
                     absl::string_view(problem.data(), problem.size())));
  };
  const Message* message = &job;
  const FieldDescriptor* field = nullptr;
  for (const absl::string_view name :
       absl::StrSplit(absl::string_view(path.data(), path.size()), '.')) {
    if (field != nullptr) {
      if (field->message_type() == nullptr || field->is_repeated()) return wrong("has no fields");
      message = &message->GetReflection()->GetMessage(*message, field);
    }
    field = message->GetDescriptor()->FindFieldByName(std::string(name));
    if (field == nullptr) return wrong("there is no such field");
  }
  if (field->message_type() != nullptr) return wrong("has fields: name one of them");
  std::vector<std::string> texts;
  const Reflection& reflection = *message->GetReflection();
  if (field->is_repeated()) {
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      texts.push_back(TextOf(*message, *field, i));
    }
  } else if (reflection.HasField(*message, field)) {
    texts.push_back(TextOf(*message, *field, -1));
  }
  return texts;
}

}  // namespace parley
