#include "server/pipeline_stage/schedule/timeline.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace parley {
namespace {

// In pixels.
constexpr double kLeft = 70, kTop = 58, kRow = 30, kGap = 6, kWidth = 1100, kRight = 20;
constexpr double kLegend = 130;  // from one of its entries to the next
constexpr double kDigit = 7;     // of the numbers in boxes
constexpr double kTicks = 10;    // about so many
constexpr double kPaler = 0.25;  // each part of a stage than the one before
constexpr double kPalest = 0.5;

struct Look {
  ActionKind kind;
  absl::string_view colour, name;
};
constexpr Look kLooks[] = {{ActionKind::kForward, "#4e79a7", "forward"},
                           {ActionKind::kBackward, "#59a14f", "backward"},
                           {ActionKind::kInputGradient, "#76b7b2", "input gradient"},
                           {ActionKind::kWeightGradient, "#edc948", "weight gradient"}};

const Look& LookOf(ActionKind kind) {
  for (const Look& look : kLooks) {
    if (look.kind == kind) return look;
  }
  return kLooks[0];
}

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// 1, 2 or 5 times a power of ten, so that about kTicks of it make `seconds`.
double TickOf(double seconds) {
  const double rough = seconds / kTicks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1, 2, 5}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string Text(double x, double y, absl::string_view anchor, absl::string_view text,
                 absl::string_view colour = "#222") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n",
                         x, y, anchor, colour, text);
}

}  // namespace

std::string DrawTimeline(const Prediction& prediction, absl::string_view title) {
  const double seconds = absl::ToDoubleSeconds(prediction.makespan);
  const double scale = seconds > 0 ? kWidth / seconds : 0;
  const double bottom = kTop + static_cast<double>(prediction.stages.size()) * (kRow + kGap);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kLeft + kWidth + kRight, bottom + 40);
  absl::StrAppend(&svg, Text(kLeft, 20, "start",
                             absl::StrFormat("%s: %s, bubble %.1f%%", Escaped(title),
                                             absl::FormatDuration(prediction.makespan),
                                             100 * prediction.bubble)));
  double x = kLeft;
  for (const Look& look : kLooks) {
    const bool seen = std::any_of(
        prediction.stages.begin(), prediction.stages.end(), [&](const StagePrediction& stage) {
          return std::any_of(stage.timeline.begin(), stage.timeline.end(),
                             [&](const TimedAction& one) { return one.action.kind == look.kind; });
        });
    if (!seen) continue;
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%.1f\" y=\"32\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x,
                          look.colour);
    absl::StrAppend(&svg, Text(x + 17, 42, "start", look.name));
    x += kLegend;
  }
  for (size_t stage = 0; stage < prediction.stages.size(); ++stage) {
    const double y = kTop + static_cast<double>(stage) * (kRow + kGap);
    absl::StrAppend(&svg, Text(kLeft - 8, y + kRow / 2 + 4, "end", absl::StrCat("stage ", stage)));
    std::vector<uint32_t> parts;  // in the order in which they come: each one paler
    for (const TimedAction& one : prediction.stages[stage].timeline) {
      const auto part = std::find(parts.begin(), parts.end(), one.action.part);
      const double pale = std::min(kPaler * static_cast<double>(part - parts.begin()), kPalest);
      if (part == parts.end()) parts.push_back(one.action.part);
      const double begin = kLeft + absl::ToDoubleSeconds(one.begin) * scale;
      const double width = absl::ToDoubleSeconds(one.end - one.begin) * scale;
      absl::StrAppendFormat(
          &svg,
          "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" "
          "fill-opacity=\"%.2f\" "
          "stroke=\"white\" stroke-width=\"0.5\"><title>%s: %s to %s</title></rect>\n",
          begin, y, width, kRow, LookOf(one.action.kind).colour, 1 - pale, ToText(one.action),
          absl::FormatDuration(one.begin), absl::FormatDuration(one.end));
      const std::string number = absl::StrCat(one.action.microbatch);
      if (width < kDigit * static_cast<double>(number.size()) + 2) continue;
      absl::StrAppend(&svg, Text(begin + width / 2, y + kRow / 2 + 4, "middle", number, "white"));
    }
  }
  if (seconds > 0) {
    const double tick = TickOf(seconds);
    for (int64_t i = 0; static_cast<double>(i) * tick <= seconds * 1.0001; ++i) {
      const double at = static_cast<double>(i) * tick;
      absl::StrAppendFormat(
          &svg, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888\"/>\n",
          kLeft + at * scale, kLeft + at * scale, bottom, bottom + 5);
      absl::StrAppend(&svg, Text(kLeft + at * scale, bottom + 20, "middle",
                                 absl::FormatDuration(absl::Seconds(at))));
    }
  }
  return absl::StrCat(svg, "</svg>\n");
}

}  // namespace parley
