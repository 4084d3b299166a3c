#include "client/parley/metrics_text.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace parley {
namespace {

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '_' || c == ':'; }

// Reads a line from its begin on; each method leaves what comes after what it has read.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  std::string_view Name() {
    size_t size = 0;
    while (size < rest_.size() && IsNameCharacter(rest_[size])) ++size;
    const std::string_view name = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return name;
  }

  void SkipSpaces() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }

  bool Skip(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // A label's value, with its quotes.
  std::optional<std::string> Quoted() {
    if (!Skip('"')) return std::nullopt;
    std::string value;
    while (!rest_.empty()) {
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return value;
      if (c != '\\') {
        value.push_back(c);
        continue;
      }
      if (rest_.empty()) return std::nullopt;
      value.push_back(rest_[0] == 'n' ? '\n' : rest_[0]);
      rest_.remove_prefix(1);
    }
    return std::nullopt;
  }

  std::string_view Word() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t"));
    rest_.remove_prefix(word.size());
    return word;
  }

 private:
  std::string_view rest_;
};

bool ReadLabels(LineReader& line, std::map<std::string, std::string>& labels) {
  if (!line.Skip('{')) return true;
  while (true) {
    line.SkipSpaces();
    if (line.Skip('}')) return true;
    const std::string name(line.Name());
    line.SkipSpaces();
    if (name.empty() || !line.Skip('=')) return false;
    line.SkipSpaces();
    auto value = line.Quoted();
    if (!value) return false;
    labels[name] = *std::move(value);
    line.SkipSpaces();
    line.Skip(',');
  }
}

std::optional<MetricSample> ReadSample(std::string_view text) {
  LineReader line(text);
  line.SkipSpaces();
  MetricSample sample;
  sample.name = std::string(line.Name());
  line.SkipSpaces();
  if (sample.name.empty() || !ReadLabels(line, sample.labels)) return std::nullopt;
  line.SkipSpaces();
  const std::string_view value = line.Word();  // a time may follow
  if (!absl::SimpleAtod({value.data(), value.size()}, &sample.value)) return std::nullopt;
  return sample;
}

}  // namespace

std::vector<MetricSample> ParseMetrics(std::string_view text) {
  std::vector<MetricSample> samples;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (auto sample = ReadSample(text.substr(0, end))) samples.push_back(*std::move(sample));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return samples;
}

}  // namespace parley
