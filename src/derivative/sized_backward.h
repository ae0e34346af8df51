#pragma once

#include <memory>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "derivative/backward_program.h"
#include "derivative/double_backward.h"
#include "runtime/call/call_plan.h"

/// Backwards of programs for many sizes.
namespace ahead::compiling {

/// The executable that takes this tensor after all others.
aot::Executable with_last_argument(const aot::Executable& general, at::Tensor last);

/// The backward for one choice of the sizes that the graph of `general` takes. What all choices
/// share is compiled once: the backward for tangents as they were traced, of all results. `sizes`
/// is the tensor that its graph is given.
std::shared_ptr<runtime::BackwardVariants> backward_at_sizes(
    std::shared_ptr<BackwardProgram> general, at::Tensor sizes);

/// Second derivatives of a program for many sizes.
class SizedDerivatives {
 public:
  virtual ~SizedDerivatives() = default;

  /// Those for one choice of sizes. They are made when they are asked for.
  virtual std::shared_ptr<runtime::DifferentiableBackward> at(
      const std::vector<int64_t>& sizes) const = 0;
};

/// As make_double_backward(), for a graph that takes sizes.
std::shared_ptr<const SizedDerivatives> make_sized_derivatives(BackwardRecipe recipe,
                                                               const Options& options,
                                                               const detail::Compilers& compilers);

}  // namespace ahead::compiling
