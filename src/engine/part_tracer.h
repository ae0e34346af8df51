#pragma once

#include <memory>
#include <stdexcept>

#include "engine/captured_program.h"
#include "engine/size_pattern.h"

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

/// The sizes that may change, and their values now.
struct ChangingSizes {
  const SizePattern& pattern;
  const std::vector<int64_t>& values;
};

/// Traces steps `begin` to `end` of a backward, for the gradients that wait now. Throws
/// NotTraceable, naming the step at fault. Nothing is run or changed.
Part trace_part(Backward& backward, const std::vector<Step::Kind>& kinds, size_t begin, size_t end,
                const Gradients& gradients);
/// The same with a graph for all sizes for which the part's guards hold. Throws std::exception if
/// there is none.
Part trace_lifted_part(Backward& backward, const std::vector<Step::Kind>& kinds, size_t begin,
                       size_t end, const Gradients& gradients, const ChangingSizes& sizes);

}  // namespace ahead::engine
