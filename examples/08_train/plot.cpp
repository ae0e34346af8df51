#include "plot.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace {

struct Range {
  double low, high;
};

Range range_of(const Curve& first, const Curve& second) {
  const auto [low, high] = std::minmax_element(first.values.begin(), first.values.end());
  const auto [other_low, other_high] =
      std::minmax_element(second.values.begin(), second.values.end());
  const Range range{std::min(*low, *other_low), std::max(*high, *other_high)};
  return range.low < range.high ? range : Range{range.low - 0.5, range.high + 0.5};
}

std::string format(const char* pattern, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

void draw(std::vector<std::string>& rows, const Curve& curve, Range range, char mark,
          char meeting) {
  const size_t height = rows.size(), width = rows[0].size();
  for (size_t x = 0; x < width; ++x) {
    const size_t step = x * (curve.values.size() - 1) / (width - 1);
    const double share = (range.high - curve.values[step]) / (range.high - range.low);
    char& cell = rows[static_cast<size_t>(share * static_cast<double>(height - 1) + 0.5)][x];
    cell = cell == ' ' ? mark : meeting;
  }
}

std::string polyline(const Curve& curve, Range range, const char* style) {
  std::string text = format("<polyline fill=\"none\" %s points=\"", style);
  for (size_t i = 0; i < curve.values.size(); ++i) {
    const double x = static_cast<double>(i) / static_cast<double>(curve.values.size() - 1);
    const double y = (range.high - curve.values[i]) / (range.high - range.low);
    text += format("%.1f,%.1f ", 60 + 560 * x, 20 + 300 * y);
  }
  return text + "\"/>\n";
}

}  // namespace

std::string letter_plot(const Curve& first, const Curve& second) {
  const Range range = range_of(first, second);
  std::vector<std::string> rows(14, std::string(68, ' '));
  draw(rows, first, range, 'o', 'o');
  draw(rows, second, range, '+', '*');
  std::string text;
  for (size_t y = 0; y < rows.size(); ++y) {
    const double share = static_cast<double>(y) / static_cast<double>(rows.size() - 1);
    const double value = range.high - share * (range.high - range.low);
    text += format("%7.2f |", value) + rows[y] + "\n";
  }
  text += "        +" + std::string(rows[0].size(), '-') + "\n";
  text += format("         o %s   + %s   * both   (%zu steps)\n", first.name.c_str(),
                 second.name.c_str(), first.values.size());
  return text;
}

std::string svg_plot(const Curve& first, const Curve& second) {
  const Range range = range_of(first, second);
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"360\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"640\" height=\"360\" fill=\"white\"/>\n"
      "<path d=\"M60,20 V320 H620\" fill=\"none\" stroke=\"black\"/>\n";
  text += format("<text x=\"52\" y=\"24\" text-anchor=\"end\">%.2f</text>\n", range.high);
  text += format("<text x=\"52\" y=\"324\" text-anchor=\"end\">%.2f</text>\n", range.low);
  text += format("<text x=\"620\" y=\"340\" text-anchor=\"end\">%zu steps</text>\n",
                 first.values.size());
  text += polyline(first, range, "stroke=\"#9ecae1\" stroke-width=\"6\"");
  text += polyline(second, range, "stroke=\"#d62728\" stroke-width=\"1.5\"");
  text += format("<text x=\"600\" y=\"40\" text-anchor=\"end\" fill=\"#4292c6\">%s</text>\n",
                 first.name.c_str());
  text += format("<text x=\"600\" y=\"58\" text-anchor=\"end\" fill=\"#d62728\">%s</text>\n",
                 second.name.c_str());
  return text + "</svg>\n";
}
