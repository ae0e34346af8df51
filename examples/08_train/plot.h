#pragma once

#include <string>
#include <vector>

/// A named list of numbers, one for each step of training.
struct Curve {
  std::string name;
  std::vector<double> values;
};

/// Two curves of the same length as a picture of letters. Where both meet, only the meeting shows.
std::string letter_plot(const Curve& first, const Curve& second);

/// Two curves of the same length as an SVG image: the first broad and pale below the second.
std::string svg_plot(const Curve& first, const Curve& second);
