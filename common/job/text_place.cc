#include "common/job/text_place.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

class Follower {
 public:
  Follower(std::string_view text, const TextRoot& root) : text_(text) {
    blocks_.push_back({.type = root.type});
    if (root.field == nullptr) return;
    place_.in_field = true;
    place_.path = root.path;
    place_.field = root.field;
    place_.before_value = true;
  }

  TextPlace To(size_t place) {
    while (at_ < std::min(place, text_.size())) Token();
    place_.block = blocks_.back().path;
    place_.type = blocks_.back().type;
    return place_;
  }

 private:
  struct Block {
    std::string path;
    const google::protobuf::Descriptor* type = nullptr;
    bool in_list = false;                  // it is an element of [...]
    std::map<std::string, int> seen = {};  // repeated fields
  };

  void Token() {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"' || c == '\'') {
      String(c);
    } else if (c == '{' || c == '<') {
      ++at_;
      blocks_.push_back({.path = place_.path,
                         .type = place_.field == nullptr ? nullptr : place_.field->message_type(),
                         .in_list = in_list_});
      in_list_ = false;
      place_.before_value = false;
    } else if (c == '}' || c == '>') {
      ++at_;
      if (blocks_.size() == 1) return;
      in_list_ = blocks_.back().in_list;
      blocks_.pop_back();
      ValueIsOver();
    } else if (c == '[' || c == ']') {
      ++at_;
      in_list_ = c == '[';
      ValueIsOver();
    } else if (IsNameCharacter(c)) {
      place_.before_value ? Word() : Name();
    } else {
      ++at_;
    }
  }

  // In a list the next value comes.
  void ValueIsOver() { place_.before_value = in_list_; }

  void String(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_, text_.size());
    if (at_ == text_.size() || text_[at_] != quote) return;  // not closed: still the value
    ++at_;
    ValueIsOver();
  }

  // A number or the name of a value; 1e-8 is one word.
  void Word() {
    while (at_ < text_.size() &&
           (IsNameCharacter(text_[at_]) || text_[at_] == '.' ||
            ((text_[at_] == '-' || text_[at_] == '+') && (text_[at_ - 1] | 0x20) == 'e'))) {
      ++at_;
    }
    ValueIsOver();
  }

  void Name() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameCharacter(text_[at_])) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    Block& block = blocks_.back();
    place_.in_field = true;
    place_.begin = begin;
    place_.field = block.type == nullptr ? nullptr : block.type->FindFieldByName(name);
    place_.path = absl::StrCat(block.path, block.path.empty() ? "" : ".", name);
    if (place_.field != nullptr && place_.field->is_repeated()) {
      absl::StrAppend(&place_.path, "[", block.seen[name]++, "]");
    }
    place_.before_value = true;
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::vector<Block> blocks_;  // the open ones, the root first
  bool in_list_ = false;
  TextPlace place_;
};

}  // namespace

TextPlace FindPlace(std::string_view text, const TextRoot& root, size_t place) {
  return Follower(text, root).To(place);
}

}  // namespace parley
