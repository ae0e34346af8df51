#pragma once

#include <string>
#include <vector>

namespace ahead::tracing {

/// One thing that a trace does otherwise than LibTorch does it.
struct Departure {
  std::string subject;  ///< an operator or an autograd node by name, or a kind of calls in words
  std::string file;     ///< the file of this folder that does it, without its ending
  std::string instead;  ///< what is done
  std::string reason;   ///< why LibTorch's own way would not give what eager gives
};
using Departures = std::vector<Departure>;

/// A departure that a function makes, rather than an entry of a table of operators.
template <auto Code>
Departure departure_of(const char* subject, const char* file, const char* instead,
                       const char* reason) {
  static_assert(Code != nullptr);
  return {subject, file, instead, reason};
}

/// All departures, file by file. Each file lists its own, in the tables that its code is run by.
Departures departures();

/// The section of docs/known_differences.md that lists them, with its heading.
std::string departures_section();

}  // namespace ahead::tracing
