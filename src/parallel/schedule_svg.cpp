// SPDX-License-Identifier: BSD-3-Clause
// A schedule as a picture: a row a rank, time to the right.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

constexpr double svg_left = 72, svg_right = 128, svg_top = 78, svg_row = 26, svg_row_step = 32;
constexpr double least_cell = 15, usual_width = 1000, most_width = 6000;

using SvgRgb = std::array<int, 3>;

SvgRgb svg_colour(Act act) {
  if (act == Act::forward) return {46, 103, 166};
  return act == Act::weight_backward ? SvgRgb{74, 138, 82} : SvgRgb{200, 104, 28};
}

// The stages of a rank by lighter shades.
std::string svg_shade(Act act, double light) {
  SvgRgb rgb = svg_colour(act);
  for (int& part : rgb) part += static_cast<int>(std::lround((255 - part) * light));
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

std::string svg_escaped(const std::string& text) {
  std::string safe;
  for (const char c : text)
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return safe;
}

class SchedulePicture {
 public:
  SchedulePicture(const Schedule& schedule, const Timeline& timeline)
      : schedule_(schedule), timeline_(timeline) {
    double shortest = timeline.makespan;
    for (const auto& timed : timeline.ranks)
      for (const TimedAction& t : timed) {
        if (computes(t.action.act) && t.end > t.begin)
          shortest = std::min(shortest, t.end - t.begin);
        else
          updates_ = updates_ || t.action.act == Act::update;
      }
    const double makespan = std::max(timeline.makespan, 1e-12);
    scale_ = std::min(std::max(usual_width / makespan, least_cell / std::max(shortest, 1e-12)),
                      most_width / makespan);
    scale_ = std::min(scale_, 60 / std::max(shortest, 1e-12));  // few actions: no giant cells
    width_ = std::max(svg_left + scale_ * makespan + svg_right, 560.0);
    bottom_ = svg_top + svg_row_step * static_cast<double>(timeline.ranks.size());
  }

  std::string draw() {
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"12\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        width_, bottom_ + 44);
    head();
    axis();
    for (size_t r = 0; r < timeline_.ranks.size(); ++r) row(r);
    return svg_ + "</svg>\n";
  }

 private:
  double x(double time) const { return svg_left + time * scale_; }

  void text(double at_x, double at_y, const std::string& words, const std::string& more = "") {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", at_x, at_y, more,
                        svg_escaped(words));
  }

  void head() {
    text(svg_left, 24,
         fmt::format("{}: ranks {}, stages {}, micro-batches {}", schedule_.name, schedule_.ranks,
                     schedule_.stages, schedule_.micros),
         " font-size=\"16\" font-weight=\"bold\"");
    text(svg_left, 44,
         fmt::format("time {:g}, idle {:.1f} %", timeline_.makespan, 100 * timeline_.bubble));
    const bool split = schedule_.splits_backward();
    double at = svg_left;
    legend(at, Act::forward, "forward");
    legend(at, Act::backward, split ? "backward of the input" : "backward");
    if (split) legend(at, Act::weight_backward, "backward of the weights");
    if (schedule_.stages > schedule_.ranks) text(at, 65, "lighter: later stage of the rank");
    if (updates_) text(at, 65, "black bar: update of the weights");
  }

  void legend(double& at, Act act, const std::string& words) {
    svg_ += fmt::format("<rect x=\"{:.1f}\" y=\"55\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                        at, svg_shade(act, 0));
    text(at + 17, 65, words);
    at += 36 + 6.2 * static_cast<double>(words.size());
  }

  // Marks at 1, 2 or 5 times a power of ten, at least 50 pixels apart.
  void axis() {
    double step = std::pow(10, std::floor(std::log10(50 / scale_)));
    for (const double times : {2.0, 2.5, 2.0})
      if (step * scale_ < 50) step *= times;
    for (int i = 0; i * step <= timeline_.makespan * (1 + 1e-9); ++i) {
      svg_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n",
          x(i * step), svg_top - 4, bottom_ + 4);
      text(x(i * step), bottom_ + 18, fmt::format("{:g}", i * step), " text-anchor=\"middle\"");
    }
    text(svg_left, bottom_ + 36, "time", " fill=\"#666\"");
  }

  void row(size_t rank) {
    const double y = svg_top + svg_row_step * static_cast<double>(rank);
    text(svg_left - 8, y + 17, fmt::format("rank {}", rank), " text-anchor=\"end\"");
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"#f3f3f3\"/>\n",
        svg_left, y, scale_ * timeline_.makespan, svg_row);
    for (const TimedAction& t : timeline_.ranks[rank]) {
      if (computes(t.action.act)) cell(t, y);
      if (t.action.act == Act::update)
        svg_ += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"2\" height=\"{}\" fill=\"#111\"/>\n",
            x(t.end) - 1, y - 3, svg_row + 6);
    }
    text(x(timeline_.makespan) + 10, y + 17, fmt::format("{} in flight", timeline_.in_flight[rank]),
         " fill=\"#666\"");
  }

  double light_of(const Action& action) const {
    const std::vector<int> held =
        schedule_.stages_of(schedule_.rank_of[static_cast<size_t>(action.stage)]);
    const auto place = std::find(held.begin(), held.end(), action.stage) - held.begin();
    return held.size() < 2
               ? 0
               : 0.6 * static_cast<double>(place) / static_cast<double>(held.size() - 1);
  }

  void cell(const TimedAction& t, double y) {
    const double light = light_of(t.action), wide = scale_ * (t.end - t.begin);
    svg_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
        "stroke=\"#fff\" stroke-width=\"0.8\"><title>{}: {:g} to {:g}</title></rect>\n",
        x(t.begin), y, wide, svg_row, svg_shade(t.action.act, light), word_of(t.action), t.begin,
        t.end);
    const std::string number = std::to_string(t.action.micro);
    const double size = std::min(11.0, (wide - 2) / (0.6 * static_cast<double>(number.size())));
    if (size < 6) return;  // nobody could read it
    svg_ += fmt::format(
        "<text x=\"{:.2f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" text-anchor=\"middle\" "
        "fill=\"{}\" pointer-events=\"none\">{}</text>\n",
        x(t.begin) + wide / 2, y + 17, size, light > 0.25 ? "#222" : "#fff", number);
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  double scale_ = 1, width_ = 0, bottom_ = 0;
  bool updates_ = false;
  std::string svg_;
};

}  // namespace

std::string to_svg(const Schedule& schedule, const Timeline& timeline) {
  return SchedulePicture(schedule, timeline).draw();
}

}  // namespace braid::parallel
