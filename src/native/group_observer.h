#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "native/groups.h"

namespace ahead::native {

/// What a kernel and ATen made of a group of operators.
struct RunBothWays {
  const std::string& graph;  ///< the name of the graph that the group is in
  const Group& group;
  const std::vector<at::Tensor>& arguments;
  const std::vector<at::Tensor>& by_kernel;
  const std::vector<at::Tensor>& by_aten;
  /// What ATen makes of it in another precision: float32 of float64, float64 of the others. Empty
  /// if that cannot be had.
  const std::vector<at::Tensor>& by_aten_otherwise;
};

/// Looks at groups of operators as they are computed in both ways. Threads may call it at once.
class GroupObserver {
 public:
  virtual ~GroupObserver() = default;
  /// May change the text of a kernel before it is compiled.
  virtual void change(std::string& text) = 0;
  /// Called for each run of a group. The graph goes on with what ATen gave.
  virtual void look_at(const RunBothWays& run) = 0;
};

}  // namespace ahead::native
