#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace ahead::engine {

/// A step cannot become part of a graph.
class NotTraceable : public std::runtime_error {
 public:
  NotTraceable(size_t step, const std::string& reason, bool is_user_code = false)
      : std::runtime_error(reason), step(step), is_user_code(is_user_code) {}
  size_t step;
  /// It is a call of user code, which nobody promised to be traceable.
  bool is_user_code;
};

}  // namespace ahead::engine
