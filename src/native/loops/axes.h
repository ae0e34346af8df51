#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ahead::native {

/// One direction of a loop nest, as Axes knows it.
using Axis = int32_t;
/// Axes that are walked one inside the other, outermost first.
using AxisList = c10::SmallVector<Axis, 4>;

/// How the dimensions of the tensors of several operators belong together: dimensions that are
/// walked by one loop are one axis. Axes are found equal, and are divided where a view divides or
/// joins dimensions; what is found can be taken back.
///
///     [6, 4] --view--> [2, 3, 4]       a: 6, b: 4     a becomes (c: 2, d: 3)
class Axes {
 public:
  /// Where the bookkeeping stood.
  struct Mark {
    size_t axes, changes;
  };

  Axis add(int64_t size);
  int64_t size(Axis axis) const { return axes_[static_cast<size_t>(axis)].size; }

  /// The axes that these consist of now.
  AxisList resolve(const AxisList& axes) const;
  /// Makes the two lists the same. False if they cannot be; then some of it may have been done.
  bool unify(const AxisList& one, const AxisList& other);
  /// Cuts a list into pieces of these sizes, outermost first; nothing if that cannot be.
  std::optional<std::vector<AxisList>> cut(const AxisList& axes, c10::ArrayRef<int64_t> sizes);

  Mark mark() const { return {axes_.size(), changes_.size()}; }
  /// Forgets what was found since.
  void go_back(Mark mark);

 private:
  struct Entry {
    int64_t size;
    Axis same_as = -1;            ///< another axis that stands for it
    Axis outer = -1, inner = -1;  ///< what it was divided into
  };

  void append(Axis axis, AxisList& to) const;
  void split(Axis axis, int64_t inner_size);
  Entry& change(Axis axis);

  std::vector<Entry> axes_;
  std::vector<Axis> changes_;  ///< each axis is changed at most once
};

}  // namespace ahead::native
