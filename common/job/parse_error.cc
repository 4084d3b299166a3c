#include "common/job/parse_error.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace parley {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// What stands between the first and second, third and fourth, ... quote of a message.
std::vector<std::string> Quoted(const std::string& message) {
  const std::vector<std::string> pieces = absl::StrSplit(message, '"');
  std::vector<std::string> quoted;
  for (size_t i = 1; i + 1 < pieces.size(); i += 2) quoted.push_back(pieces[i]);
  return quoted;
}

// Protobuf's messages about a field as a whole name types of C++; these say the same to who writes
// a job file. Empty: the message is about something else.
std::string Reworded(const std::string& message, const TextPlace& place) {
  const std::vector<std::string> quoted = Quoted(message);
  if (absl::StrContains(message, "has no field named")) {
    return absl::StrCat(place.path, ": there is no such field here; there are: ",
                        place.type == nullptr ? "none" : FieldNames(*place.type));
  }
  if (absl::StrContains(message, "is specified multiple times")) {
    return absl::StrCat(place.path, ": is given more than once");
  }
  if (absl::StrContains(message, "another member of oneof") && quoted.size() >= 2) {
    return absl::StrCat(place.path, ": cannot be given together with ", place.block,
                        place.block.empty() ? "" : ".", quoted[1]);
  }
  if (absl::StrContains(message, "Unknown enumeration value") && !quoted.empty()) {
    return absl::StrCat(place.path, ": there is no value ", quoted[0], "; it takes ",
                        place.field == nullptr ? "another one" : ValueText(*place.field));
  }
  return "";
}

// What is wrong between the fields of a message.
std::string BetweenFields(const std::string& message, const TextPlace& place) {
  const std::string names =
      place.type == nullptr ? "" : absl::StrCat("; there are: ", FieldNames(*place.type));
  return place.block.empty() ? absl::StrCat("a field is expected here", names, " (", message, ")")
                             : absl::StrCat(place.block, ": a field or } is expected here", names,
                                            " (", message, ")");
}

}  // namespace

std::string FieldNames(const Descriptor& type) {
  std::string names;
  for (int i = 0; i < type.field_count(); ++i) {
    absl::StrAppend(&names, i > 0 ? ", " : "", type.field(i)->name());
  }
  return names.empty() ? "none" : names;
}

std::string ValueText(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a whole number from 0 on";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a text in quotes";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return absl::StrCat("{ ... } with fields of: ", FieldNames(*field.message_type()));
    case FieldDescriptor::CPPTYPE_ENUM:
      break;
    default:
      return "another value";
  }
  std::string names;
  for (int v = 1; v < field.enum_type()->value_count(); ++v) {  // 0 is "unspecified"
    absl::StrAppend(&names, v > 1 ? ", " : "one of ", field.enum_type()->value(v)->name());
  }
  return names;
}

void FirstParseError::AddError(int line, google::protobuf::io::ColumnNumber column,
                               const std::string& message) {
  if (line_ != 0) return;
  const size_t offset = Offset(line, column);
  const TextPlace place = FindPlace(text_, root_, offset);
  // Where the parser stands when it finds a field wrong may be the next line, or the next field.
  line_ = LineOf(place.begin);
  if (place.in_field) error_ = Reworded(message, place);
  if (!error_.empty()) return;
  if (place.in_field && place.before_value) {
    error_ = place.field == nullptr ? absl::StrCat(place.path, ": ", message)
                                    : absl::StrCat(place.path, ": takes ", ValueText(*place.field),
                                                   " (", message, ")");
    return;
  }
  line_ = LineOf(offset);
  error_ = BetweenFields(message, place);
}

size_t FirstParseError::Offset(int line, int column) const {
  size_t offset = 0;
  for (int i = 0; i < line; ++i) {
    offset = text_.find('\n', offset);
    if (offset == std::string_view::npos) return text_.size();
    ++offset;
  }
  // The tokenizer counts a tab as the way to the next multiple of 8.
  for (int at = 0; at < column && offset < text_.size() && text_[offset] != '\n'; ++offset) {
    at += text_[offset] == '\t' ? 8 - at % 8 : 1;
  }
  return offset;
}

int FirstParseError::LineOf(size_t offset) const {
  const auto end = text_.begin() + static_cast<std::ptrdiff_t>(offset);
  return 1 + static_cast<int>(std::count(text_.begin(), end, '\n'));
}

}  // namespace parley
