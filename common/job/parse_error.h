#ifndef PARLEY_COMMON_JOB_PARSE_ERROR_H_
#define PARLEY_COMMON_JOB_PARSE_ERROR_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>

#include <string>
#include <string_view>
#include <utility>

#include "common/job/text_place.h"

namespace parley {

// "workers, shards, stages": what can stand in a message.
std::string FieldNames(const google::protobuf::Descriptor& type);

// What a value of the field looks like: "a whole number from 0 on".
std::string ValueText(const google::protobuf::FieldDescriptor& field);

// Keeps the first error of protobuf's text parser, said in the terms of a job file: which line,
// which field (its whole path), what is wrong and what would be right.
class FirstParseError : public google::protobuf::io::ErrorCollector {
 public:
  // text: what is parsed, as a `root`; must outlive the object.
  FirstParseError(std::string_view text, TextRoot root) : text_(text), root_(std::move(root)) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override;
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}

  int line() const { return line_; }  // from 1; 0: there was no error
  const std::string& text() const { return error_; }

 private:
  // Offset in the text of a line and column, both from 0.
  size_t Offset(int line, int column) const;
  int LineOf(size_t offset) const;  // from 1

  const std::string_view text_;
  const TextRoot root_;
  int line_ = 0;
  std::string error_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_PARSE_ERROR_H_
