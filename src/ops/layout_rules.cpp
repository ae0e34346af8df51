#include "ops/layout_rules.h"

#include <string>
#include <unordered_map>

#include "ahead/errors.h"
#include "ops/shape_rules.h"
#include "ops/shapes/layouts.h"

namespace ahead::ops {
namespace {

LayoutRule find_layout_rule(const Operator& op) {
  static const auto* rules = [] {
    auto* map = new std::unordered_map<const Operator*, LayoutRule>;
    for (const auto& [name, rule] : shape_rules().layouts())
      map->emplace(Operator::find("aten." + name), rule);
    return map;
  }();
  const auto found = rules->find(&op);
  return found == rules->end() ? nullptr : found->second;
}

}  // namespace

Dims LayoutCall::list(size_t index) const {
  return to_dims(arguments[index].toSymIntVector());
}

std::vector<int64_t> LayoutCall::numbers(size_t index) const {
  if (arguments[index].isInt()) return {number(index)};
  return arguments[index].toIntVector();
}

bool LayoutCall::equal(Dim left, Dim right) const {
  if (left == right || (left.is_fixed() && right.is_fixed())) return left == right;
  return guards->decide(SizeGuards::Relation::Equal, left.expression(), right.expression());
}

bool LayoutCall::less(Dim left, Dim right) const {
  if (left.is_fixed() && right.is_fixed()) return left.fixed() < right.fixed();
  return guards->decide(SizeGuards::Relation::Less, left.expression(), right.expression());
}

int64_t LayoutCall::pin(Dim dim, const char* reason) const {
  return dim.is_fixed() ? dim.fixed() : guards->pin(dim.expression(), op.name() + ": " + reason);
}

void LayoutCall::refuse(const char* why) const {
  const char* const then = guards->has_listener()
                               ? ", so that it takes no size that is read from a tensor. Keep sizes "
                                 "fixed there, and mask what is too much."
                               : ", so that sizes cannot change.";
  throw Unsupported("trace", op.name() + ": " + why + then);
}

std::vector<Layout> layouts_of_results(const LayoutCall& call, bool is_pointwise) {
  LayoutRule rule = find_layout_rule(call.op);
  if (rule == nullptr && is_pointwise) rule = shapes::pointwise_layout;
  if (rule == nullptr) call.refuse("it is not known how its results follow from sizes");
  std::vector<Layout> layouts = rule(call);
  TORCH_INTERNAL_ASSERT(layouts.size() == call.results.size(), call.op.name());
  for (size_t i = 0; i < layouts.size(); ++i) {
    const at::Tensor& result = call.results[i];
    if (result.defined() && !layouts[i].describes(result, call.guards->values()))
      call.refuse("its results do not follow from sizes as expected");
  }
  return layouts;
}

}  // namespace ahead::ops
