#ifndef PARLEY_COMMON_JOB_TEXT_PLACE_H_
#define PARLEY_COMMON_JOB_TEXT_PLACE_H_

#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace parley {

// What a text in protobuf's text format is: the fields of `type`, or one value of `field`.
struct TextRoot {
  const google::protobuf::Descriptor* type = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;  // nullptr: the text is fields
  std::string path;                                          // of `field`: "cluster.shards"
};

// Where in such a text a place lies.
struct TextPlace {
  // The last field whose name begins before the place.
  bool in_field = false;                                     // whether there is one
  size_t begin = 0;                                          // of its name
  std::string path;                                          // "optimizer.overrides[1].pattern"
  const google::protobuf::FieldDescriptor* field = nullptr;  // nullptr: there is none of this name
  bool before_value = false;  // its value has not been read when the place is reached

  // The message around the place.
  std::string block;                                   // its path; empty: the root
  const google::protobuf::Descriptor* type = nullptr;  // nullptr: of no known type
};

// Follows the text up to the place, which its parser has reached. It needs no more than braces and
// names, and takes any text.
TextPlace FindPlace(std::string_view text, const TextRoot& root, size_t place);

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_TEXT_PLACE_H_
