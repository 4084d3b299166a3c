#include "common/job/parse_error.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace parley {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;

constexpr char kJob[] = "parley.JobConfig";

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// What stands between the first and second, third and fourth, ... quote of a message.
std::vector<std::string> Quoted(const std::string& message) {
  const std::vector<std::string> pieces = absl::StrSplit(message, '"');
  std::vector<std::string> quoted;
  for (size_t i = 1; i + 1 < pieces.size(); i += 2) quoted.push_back(pieces[i]);
  return quoted;
}

// A field of this name in whichever message of the job file; nullptr if there is none. Those with
// one name in several messages take alike values.
const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
  if (const FieldDescriptor* field = type.FindFieldByName(name)) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->message_type() == nullptr) continue;
    const FieldDescriptor* field = FindField(*type.field(i)->message_type(), name);
    if (field != nullptr) return field;
  }
  return nullptr;
}

const FieldDescriptor* JobField(const std::string& name) {
  const Descriptor* job = DescriptorPool::generated_pool()->FindMessageTypeByName(kJob);
  return job == nullptr ? nullptr : FindField(*job, name);
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
    const FieldDescriptor* field = JobField(quoted[1]);
    return absl::StrCat(quoted[1], ": there is no value ", quoted[0], "; it takes ",
                        field == nullptr ? "another one" : ValueText(*field));
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
  line_ = line < 0 ? 1 : line + 1;
  error_ = Reworded(message);
  const size_t place = Place(line, column);
  if (!error_.empty()) {
    // The parser has read on, perhaps to a later line.
    const size_t at = LastWord(error_.substr(0, error_.find(':')), place);
    if (at != std::string_view::npos) {
      line_ = 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + at, '\n'));
    }
    return;
  }
  const std::string name = FieldBefore(place);
  const FieldDescriptor* field = name.empty() ? nullptr : JobField(name);
  error_ = field == nullptr ? absl::StrCat(name, name.empty() ? "" : ": ", message)
                            : absl::StrCat(name, ": takes ", ValueText(*field), " (", message, ")");
}

size_t FirstParseError::Place(int line, int column) const {
  size_t place = 0;
  for (int i = 0; i < line; ++i) {
    place = text_.find('\n', place);
    if (place == std::string_view::npos) return text_.size();
    ++place;
  }
  // The tokenizer counts a tab as the way to the next multiple of 8.
  for (int at = 0; at < column && place < text_.size() && text_[place] != '\n'; ++place) {
    at += text_[place] == '\t' ? 8 - at % 8 : 1;
  }
  return place;
}

size_t FirstParseError::LastWord(std::string_view word, size_t place) const {
  for (size_t at = text_.rfind(word, place); at != std::string_view::npos && !word.empty();
       at = text_.rfind(word, at - 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !IsNameCharacter(text_[at - 1])) &&
        (end == text_.size() || !IsNameCharacter(text_[end]))) {
      return at;
    }
    if (at == 0) break;
  }
  return std::string_view::npos;
}

std::string FirstParseError::FieldBefore(size_t place) const {
  size_t end = place;
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
