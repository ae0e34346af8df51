#include "native/lower/nest.h"

#include <algorithm>
#include <numeric>

#include "ops/facts/aliasing.h"

namespace ahead::native {
namespace {

using AxisStrides = std::vector<std::pair<Axis, int64_t>>;

/// Rows that are walked by one thread must not be longer, unless there are many of them.
constexpr int64_t longest_single_row = 1 << 16;
/// Sums over some rows and some columns: how many columns at least are summed up at once, and how
/// many sums there are at most.
constexpr int64_t shortest_part = 16, most_parts = 4096;

bool holds(const AxisList& list, Axis axis) {
  return std::find(list.begin(), list.end(), axis) != list.end();
}

/// Whether both have the same axes, in any order.
bool same_set(const AxisList& one, const AxisList& other) {
  return one.size() == other.size() &&
         std::all_of(one.begin(), one.end(), [&](Axis axis) { return holds(other, axis); });
}

AxisList without(const AxisList& all, const AxisList& gone) {
  AxisList rest;
  for (const Axis axis : all) {
    if (!holds(gone, axis)) rest.push_back(axis);
  }
  return rest;
}

AxisList joined(const std::vector<AxisList>& lists) {
  AxisList all;
  for (const AxisList& list : lists) all.append(list.begin(), list.end());
  return all;
}

bool has_twice(const AxisList& list) {
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (list[i] == list[j]) return true;
    }
  }
  return false;
}

int64_t stride_along(const AxisStrides& strides, Axis axis) {
  for (const auto& [known, stride] : strides) {
    if (known == axis) return stride;
  }
  return 0;
}

/// How many axes there are along which the same elements come again.
int64_t num_repeated(const AxisStrides& strides) {
  return std::count_if(strides.begin(), strides.end(),
                       [](const auto& one) { return one.second == 0; });
}

}  // namespace

Nests::Nests(const Graph& graph, const std::function<bool(const Node&)>& takes) {
  for (const Node& node : graph.nodes()) {
    std::optional<Work> work = takes(node) ? work_of(node) : std::nullopt;
    if (!work || constant_of(*node.result())) continue;
    Member member{&node, std::move(*work), {}};
    for (const int64_t size : member.work.space) {
      AxisList axes;
      if (size != 1) axes.push_back(axes_.add(size));
      member.space.push_back(std::move(axes));
    }
    members_.emplace(&node, std::move(member));
  }
}

const Member* Nests::member(const Node* node) const {
  const auto found = members_.find(node);
  return found == members_.end() ? nullptr : &found->second;
}

const Member* Nests::maker(const Value* value) const {
  while (value->producer() != nullptr) {
    const Node* node = value->producer();
    if (const Member* made = member(node)) return made;
    if (!ops::is_layout_view(*node)) return nullptr;
    value = node->args()[0].value();
  }
  return nullptr;
}

AxisList Nests::axes_of(const Member& member, uint32_t dims) const {
  AxisList axes;
  for (size_t dim = 0; dim < member.space.size(); ++dim) {
    if ((dims >> dim & 1) == 0) continue;
    const AxisList resolved = axes_.resolve(member.space[dim]);
    axes.append(resolved.begin(), resolved.end());
  }
  return axes;
}

AxisList Nests::axes_of(const Member& member, const Work::Follows& follows) const {
  if (follows.is_none()) return {};
  return axes_of(member, ((1u << follows.count) - 1) << follows.dim);
}

AxisStrides Nests::strides_of(const Member& member, const Work::Place& place,
                              const TensorMeta& meta) const {
  AxisStrides strides;
  const at::IntArrayRef sizes = meta.strides;
  for (size_t dim = 0; dim < place.size(); ++dim) {
    const AxisList axes = axes_of(member, place[dim]);
    int64_t stride = sizes[dim];
    for (size_t i = axes.size(); i-- > 0;) {
      strides.emplace_back(axes[i], stride);
      stride *= axes_.size(axes[i]);
    }
  }
  return strides;
}

AxisStrides Nests::strides_of_argument(const Member& member, size_t argument) const {
  return strides_of(member, member.work.arguments[argument],
                    member.node->args()[argument].value()->meta);
}

AxisStrides Nests::strides_of_result(const Member& member, size_t result) const {
  return strides_of_result(member, result, member.node->result(result)->meta);
}

AxisStrides Nests::strides_of_result(const Member& member, size_t result,
                                     const TensorMeta& meta) const {
  return strides_of(member, member.work.results[result], meta);
}

std::optional<std::vector<Nests::SeenDim>> Nests::seen_dims(const Value* value) {
  const Node* node = value->producer();
  const Member* made = member(node);
  if (made == nullptr) return seen_through(*node);
  if (made->work.is_written_in_parts(*node, value->index())) return std::nullopt;
  std::vector<SeenDim> dims;
  for (const Work::Follows& follows : made->work.results[value->index()])
    dims.push_back({axes_of(*made, follows)});
  return dims;
}

/// A view is understood by its strides: each of its dimensions follows the axes of the source whose
/// elements are as far apart.
std::optional<std::vector<Nests::SeenDim>> Nests::seen_through(const Node& view) {
  const Value* source = view.args()[0].value();
  const auto from = seen_dims(source);
  if (!from) return from;
  AxisStrides left;
  for (size_t dim = 0; dim < from->size(); ++dim) {
    int64_t stride = at::IntArrayRef(source->meta.strides)[dim];
    if ((*from)[dim].is_repeated) return std::nullopt;
    const AxisList axes = axes_.resolve((*from)[dim].axes);
    for (size_t i = axes.size(); i-- > 0;) {
      left.emplace_back(axes[i], stride);
      stride *= axes_.size(axes[i]);
    }
  }
  const TensorMeta& meta = view.result()->meta;
  if (meta.offset != source->meta.offset) return std::nullopt;
  std::vector<SeenDim> dims(meta.sizes.size());
  // The innermost first: what they leave of an axis is where the next ones begin.
  std::vector<size_t> inner_first(dims.size());
  std::iota(inner_first.begin(), inner_first.end(), size_t{0});
  std::stable_sort(inner_first.begin(), inner_first.end(), [&](size_t one, size_t other) {
    return at::IntArrayRef(meta.strides)[one] < at::IntArrayRef(meta.strides)[other];
  });
  for (const size_t dim : inner_first) {
    int64_t rest = at::IntArrayRef(meta.sizes)[dim], stride = at::IntArrayRef(meta.strides)[dim];
    if (rest != 1 && stride == 0) {
      dims[dim].is_repeated = true;
      continue;
    }
    AxisList& axes = dims[dim].axes;
    while (rest != 1) {
      const auto found = std::find_if(left.begin(), left.end(),
                                      [&](const auto& one) { return one.second == stride; });
      if (found == left.end()) return std::nullopt;
      const Axis axis = found->first;
      const int64_t size = axes_.size(axis);
      if (rest % size == 0) {
        left.erase(found);
        axes.push_back(axis);
        rest /= size;
        stride *= size;
      } else {
        const auto halves =
            size % rest == 0 ? axes_.cut(AxisList{axis}, {size / rest, rest}) : std::nullopt;
        if (!halves) return std::nullopt;
        *found = {(*halves)[0][0], stride * rest};
        axes.push_back((*halves)[1][0]);
        rest = 1;
      }
    }
    std::reverse(axes.begin(), axes.end());
  }
  if (!left.empty()) return std::nullopt;
  return dims;
}

bool Nests::connect(const Member& member, const Group& group) {
  for (size_t i = 0; i < member.node->args().size(); ++i) {
    const Argument& argument = member.node->args()[i];
    if (!argument.is_value()) continue;
    const Member* made = maker(argument.value());
    if (made == nullptr || group.count(made->node) == 0) continue;
    if ((member.work.picked >> i & 1) != 0) return false;
    const auto dims = seen_dims(argument.value());
    if (!dims) return false;
    const Work::Place& place = member.work.arguments[i];
    for (size_t dim = 0; dim < place.size(); ++dim) {
      if (place[dim].is_none() || (*dims)[dim].is_repeated) continue;
      if (!axes_.unify((*dims)[dim].axes, axes_of(member, place[dim]))) return false;
    }
  }
  return true;
}

/// Loops of the same lengths may be one, whatever is done in them.
bool Nests::align(const Member& member, const Member& alike) {
  for (size_t dim = 0; dim < member.space.size(); ++dim) {
    if (!axes_.unify(alike.space[dim], member.space[dim])) return false;
  }
  return true;
}

bool Nests::is_used_in(const Value* value, const Group& group) const {
  for (const Node* user : value->users()) {
    if (group.count(user) != 0) return true;
    if (ops::is_layout_view(*user) && is_used_in(user->result(), group)) return true;
  }
  return false;
}

/// Finds the axes along which rows are summed up, if any are.
bool Nests::find_columns(const std::vector<const Member*>& members, const Group& group,
                         const AxisList& all, std::optional<AxisList>& columns,
                         std::string* reason) const {
  const auto demand = [&](const AxisList& axes) {
    if (!columns) columns = axes;
    return same_set(*columns, axes);
  };
  for (const Member* member : members) {
    if (member->work.row_dims != 0 && !demand(axes_of(*member, member->work.row_dims))) {
      *reason = "sums along other dimensions";
      return false;
    }
    for (size_t i = 0; i < member->work.results.size(); ++i) {
      const Value* result = member->node->result(i);
      const uint32_t reduced = member->work.reduced(i);
      if (result == nullptr || reduced == 0 || !is_used_in(result, group)) continue;
      if (!demand(axes_of(*member, reduced))) {
        *reason = "needs a sum that is known only when all rows are done";
        return false;
      }
    }
  }
  if (columns) return true;
  // Sums that nobody here needs: along the columns where these lie together in memory.
  for (const Member* member : members) {
    for (size_t i = 0; i < member->work.results.size(); ++i) {
      const uint32_t reduced = member->work.reduced(i);
      if (member->node->result(i) == nullptr || reduced == 0) continue;
      const AxisList gone = axes_of(*member, reduced);
      if (gone.size() == all.size()) continue;
      Axis innermost = -1;
      int64_t least = 0;
      for (const auto& [axis, stride] : widest_strides(*member)) {
        if (stride != 0 && (innermost < 0 || stride < least)) innermost = axis, least = stride;
      }
      columns = holds(gone, innermost) ? gone : without(all, gone);
      return true;
    }
  }
  return true;
}

AxisStrides Nests::widest_strides(const Member& member) const {
  AxisStrides widest;
  const auto consider = [&](AxisStrides strides) {
    const bool is_better = strides.size() == widest.size()
                               ? num_repeated(strides) < num_repeated(widest)
                               : strides.size() > widest.size();
    if (is_better) widest = std::move(strides);
  };
  for (size_t i = 0; i < member.work.results.size(); ++i) {
    if (member.node->result(i) != nullptr) consider(strides_of_result(member, i));
  }
  for (size_t i = 0; i < member.work.arguments.size(); ++i) {
    if (member.node->args()[i].is_value()) consider(strides_of_argument(member, i));
  }
  return widest;
}

int64_t Nests::num_elements(const AxisList& axes) const {
  int64_t count = 1;
  for (const Axis axis : axes) count *= axes_.size(axis);
  return count;
}

std::optional<Nest> Nests::nest_of(const std::vector<const Member*>& members, const Group& group,
                                   std::string* reason) const {
  std::vector<AxisList> spaces;
  size_t widest = 0;
  for (const Member* member : members) {
    spaces.push_back(axes_.resolve(joined(member->space)));
    if (has_twice(spaces.back())) {
      *reason = "two dimensions of one tensor would be walked at once";
      return std::nullopt;
    }
    if (spaces.back().size() > spaces[widest].size()) widest = spaces.size() - 1;
  }
  const AxisList& all = spaces[widest];
  std::optional<AxisList> columns;
  if (!find_columns(members, group, all, columns, reason)) return std::nullopt;
  const AxisList rows = without(all, columns.value_or(AxisList()));
  std::vector<AxisList> sums_of_parts;
  for (size_t i = 0; i < members.size(); ++i) {
    const bool is_by_row = columns && members[i]->work.row_dims == 0 && same_set(spaces[i], rows);
    if (!is_by_row && !same_set(spaces[i], all)) {
      *reason = "walks other dimensions";
      return std::nullopt;
    }
    for (size_t j = 0; j < members[i]->work.results.size(); ++j) {
      const uint32_t reduced = members[i]->work.reduced(j);
      if (reduced == 0 || members[i]->node->result(j) == nullptr) continue;
      const AxisList gone = axes_of(*members[i], reduced);
      if (!columns || same_set(gone, *columns) || same_set(gone, rows)) continue;
      const bool is_in_parts = members[i]->work.is_written_in_parts(*members[i]->node, j);
      if (is_in_parts || is_used_in(members[i]->node->result(j), group)) {
        *reason = "sums over other dimensions";
        return std::nullopt;
      }
      if (!same_set(gone, all)) sums_of_parts.push_back(gone);
    }
  }
  // By the first tensor that has all dimensions, best one that is not expanded.
  AxisStrides order;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!same_set(spaces[i], all)) continue;
    AxisStrides strides = widest_strides(*members[i]);
    if (strides.size() == all.size() &&
        (order.empty() || num_repeated(strides) < num_repeated(order)))
      order = std::move(strides);
  }
  if (order.size() != all.size()) {
    *reason = "no tensor has all dimensions";
    return std::nullopt;
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& one, const auto& other) { return one.second > other.second; });
  Nest nest;
  for (const auto& [axis, stride] : order) {
    const bool is_column = columns && holds(*columns, axis);
    (is_column ? nest.columns : nest.rows).push_back(axis);
  }
  // Without sums along rows any axis may be the columns'; the one whose elements lie together is.
  if (!columns && !nest.rows.empty()) nest.columns.push_back(nest.rows.pop_back_val());
  for (const AxisList& gone : sums_of_parts) {
    // The innermost loop sums up, and what it gives are numbers for few places.
    if (holds(gone, nest.columns.back()) && axes_.size(nest.columns.back()) >= shortest_part &&
        num_elements(without(all, gone)) <= most_parts)
      continue;
    *reason = "sums over other dimensions";
    return std::nullopt;
  }
  if (columns && nest.rows.empty() && num_elements(nest.columns) > longest_single_row) {
    *reason = "one row is all there is";
    return std::nullopt;
  }
  if (nest.columns.empty()) return nest;
  const Axis innermost = nest.columns.back();
  for (const Member* member : members) {
    for (size_t i = 0; i < member->node->args().size(); ++i) {
      const Argument& argument = member->node->args()[i];
      if (!argument.is_value()) continue;
      const Member* made = maker(argument.value());
      if (made != nullptr && group.count(made->node) != 0) continue;
      if (stride_along(strides_of_argument(*member, i), innermost) > 1) {
        *reason = "reads elements that do not lie together";
        return std::nullopt;
      }
    }
    for (size_t i = 0; i < member->work.results.size(); ++i) {
      if (member->node->result(i) == nullptr) continue;
      // Sums of columns are written once.
      if (member->work.is_written_in_parts(*member->node, i)) continue;
      if (stride_along(strides_of_result(*member, i), innermost) > 1) {
        *reason = "writes elements that do not lie together";
        return std::nullopt;
      }
    }
  }
  return nest;
}

std::optional<Nest> Nests::join(const std::vector<const Member*>& members, std::string* reason) {
  const Axes::Mark mark = axes_.mark();
  Group group;
  for (const Member* member : members) group.emplace(member->node, member);
  for (const Member* member : members) {
    if (!connect(*member, group)) {
      *reason = "a view between them moves elements";
      axes_.go_back(mark);
      return std::nullopt;
    }
  }
  if (auto nest = nest_of(members, group, reason)) return nest;
  for (const Member* member : members) {
    const auto alike = std::find_if(members.begin(), members.end(), [&](const Member* other) {
      return other->work.space == member->work.space;
    });
    if (!align(*member, **alike)) {
      *reason = "dimensions of the same lengths are divided otherwise";
      axes_.go_back(mark);
      return std::nullopt;
    }
  }
  auto nest = nest_of(members, group, reason);
  if (!nest) axes_.go_back(mark);
  return nest;
}

}  // namespace ahead::native
