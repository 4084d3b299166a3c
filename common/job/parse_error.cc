#include "common/job/parse_error.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace parley {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// What stands between the first and second, third and fourth, ... quote of a message.
std::vector<std::string> Quoted(const std::string& message) {
  const std::vector<std::string> pieces = absl::StrSplit(message, '"');
  std::vector<std::string> quoted;
  for (size_t i = 1; i + 1 < pieces.size(); i += 2) quoted.push_back(pieces[i]);
  return quoted;
}

// Values of the enum that a field of this name has, in whichever message of the job file.
std::string EnumValues(const Descriptor& type, const std::string& field) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->name() != field || type.field(i)->enum_type() == nullptr) continue;
    const EnumDescriptor* values = type.field(i)->enum_type();
    std::string names;
    for (int v = 1; v < values->value_count(); ++v) {  // 0 is "unspecified"
      absl::StrAppend(&names, v > 1 ? ", " : "", values->value(v)->name());
    }
    return names;
  }
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->message_type() == nullptr) continue;
    std::string names = EnumValues(*type.field(i)->message_type(), field);
    if (!names.empty()) return names;
  }
  return "";
}

// Protobuf's messages name types of C++; these say the same to who writes a job file. Empty: it is
// clear as it is, but for the field.
std::string Reworded(const std::string& message) {
  const std::vector<std::string> quoted = Quoted(message);
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  if (absl::StrContains(message, "has no field named") && quoted.size() == 2) {
    const Descriptor* type = pool->FindMessageTypeByName(quoted[0]);
    return absl::StrCat(quoted[1], ": there is no such field here; there are: ",
                        type != nullptr ? FieldNames(*type) : quoted[0]);
  }
  if (absl::StrContains(message, "is specified multiple times") && !quoted.empty()) {
    return absl::StrCat(quoted[0], ": is given more than once");
  }
  if (absl::StrContains(message, "another member of oneof") && quoted.size() >= 2) {
    return absl::StrCat(quoted[0], ": cannot be given together with ", quoted[1]);
  }
  if (absl::StrContains(message, "Unknown enumeration value") && quoted.size() == 2) {
    const Descriptor* job = pool->FindMessageTypeByName("parley.JobConfig");
    return absl::StrCat(quoted[1], ": there is no value ", quoted[0],
                        "; there are: ", job != nullptr ? EnumValues(*job, quoted[1]) : "");
  }
  return "";
}

}  // namespace

std::string FieldNames(const Descriptor& type) {
  std::string names;
  for (int i = 0; i < type.field_count(); ++i) {
    absl::StrAppend(&names, i > 0 ? ", " : "", type.field(i)->name());
  }
  return names.empty() ? "none" : names;
}

void FirstParseError::AddError(int line, google::protobuf::io::ColumnNumber column,
                               const std::string& message) {
  if (line_ != 0) return;
  line_ = line < 0 ? 1 : line + 1;
  error_ = Reworded(message);
  if (!error_.empty()) return;
  const std::string field = FieldBefore(line, column);
  const std::string said = message == "Expected integer, got: -"
                               ? "a negative number where a whole number from 0 on is expected"
                               : message;
  error_ = field.empty() ? said : absl::StrCat(field, ": ", said);
}

std::string FirstParseError::FieldBefore(int line, int column) const {
  size_t end = 0;
  for (int i = 0; i < line; ++i) {
    end = text_.find('\n', end);
    if (end == std::string_view::npos) return "";
    ++end;
  }
  // The tokenizer counts a tab as the way to the next multiple of 8.
  for (int at = 0; at < column && end < text_.size() && text_[end] != '\n'; ++end) {
    at += text_[end] == '\t' ? 8 - at % 8 : 1;
  }
  while (end > 0 &&
         (absl::ascii_isspace(text_[end - 1]) || text_[end - 1] == ':' || text_[end - 1] == '-')) {
    --end;
  }
  size_t begin = end;
  while (begin > 0 && IsNameCharacter(text_[begin - 1])) --begin;
  if (begin == end || absl::ascii_isdigit(text_[begin])) return "";
  return std::string(text_.substr(begin, end - begin));
}

}  // namespace parley
