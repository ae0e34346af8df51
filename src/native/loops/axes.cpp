#include "native/loops/axes.h"

#include <algorithm>

namespace ahead::native {

Axis Axes::add(int64_t size) {
  axes_.push_back({size});
  return static_cast<Axis>(axes_.size()) - 1;
}

void Axes::append(Axis axis, AxisList& to) const {
  const Entry& entry = axes_[static_cast<size_t>(axis)];
  if (entry.same_as >= 0) return append(entry.same_as, to);
  if (entry.outer < 0) return to.push_back(axis);
  append(entry.outer, to);
  append(entry.inner, to);
}

AxisList Axes::resolve(const AxisList& axes) const {
  AxisList resolved;
  for (const Axis axis : axes) append(axis, resolved);
  return resolved;
}

Axes::Entry& Axes::change(Axis axis) {
  changes_.push_back(axis);
  return axes_[static_cast<size_t>(axis)];
}

void Axes::split(Axis axis, int64_t inner_size) {
  const Axis outer = add(size(axis) / inner_size), inner = add(inner_size);
  Entry& entry = change(axis);
  entry.outer = outer;
  entry.inner = inner;
}

bool Axes::unify(const AxisList& one, const AxisList& other) {
  AxisList left = resolve(one), right = resolve(other);
  while (!left.empty() && !right.empty()) {
    const Axis a = left.pop_back_val(), b = right.pop_back_val();
    if (a == b) continue;
    if (size(a) == size(b)) {
      change(b).same_as = a;
    } else {
      const bool divides_a = size(a) > size(b);
      const Axis large = divides_a ? a : b, small = divides_a ? b : a;
      if (size(small) == 0 || size(large) % size(small) != 0) return false;
      split(large, size(small));
      const Entry parts = axes_[static_cast<size_t>(large)];
      change(parts.inner).same_as = small;
      (divides_a ? left : right).push_back(parts.outer);
    }
    // What was divided or renamed may stand further out in either list as well.
    left = resolve(left);
    right = resolve(right);
  }
  return left.empty() && right.empty();
}

std::optional<std::vector<AxisList>> Axes::cut(const AxisList& axes, c10::ArrayRef<int64_t> sizes) {
  std::vector<AxisList> pieces(sizes.size());
  AxisList rest = resolve(axes);
  for (size_t i = sizes.size(); i-- > 0;) {
    int64_t left = sizes[i];
    AxisList& piece = pieces[i];
    while (left != 1) {
      if (rest.empty() || left == 0) return std::nullopt;
      const Axis axis = rest.pop_back_val();
      if (left % size(axis) == 0) {
        piece.push_back(axis);
        left /= size(axis);
      } else if (size(axis) % left == 0) {
        split(axis, left);
        const Entry parts = axes_[static_cast<size_t>(axis)];
        rest.push_back(parts.outer);
        piece.push_back(parts.inner);
        left = 1;
      } else {
        return std::nullopt;
      }
    }
    std::reverse(piece.begin(), piece.end());
  }
  if (!rest.empty()) return std::nullopt;
  return pieces;
}

void Axes::go_back(Mark mark) {
  while (changes_.size() > mark.changes) {
    Entry& entry = axes_[static_cast<size_t>(changes_.back())];
    entry.same_as = entry.outer = entry.inner = -1;
    changes_.pop_back();
  }
  axes_.resize(mark.axes);
}

}  // namespace ahead::native
