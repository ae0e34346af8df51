#include "passes/layout_flow.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"

namespace ahead::passes {
namespace {

bool is_image(const Value* value) {
  return value != nullptr && value->meta.sizes.size() == 4;
}

/// Which arguments and results of an operator are images that lie alike, as bits.
struct Images {
  uint32_t arguments, results;
  int32_t aside = -1;
};

const Images* images_of(const Operator& op) {
  static const auto* table = [] {
    auto* images = new std::unordered_map<const Operator*, Images>;
    const auto add = [&](const char* name, Images one) {
      if (const Operator* known = Operator::find(name)) images->emplace(known, one);
    };
    add("aten.convolution", {0b1, 0b1});
    add("aten.convolution_backward", {0b11, 0b1, 1});
    for (const char* name :
         {"aten._native_batch_norm_legit_functional", "aten._native_batch_norm_legit.no_stats",
          "aten._native_batch_norm_legit_no_training", "aten.native_batch_norm", "aten.avg_pool2d",
          "aten._adaptive_avg_pool2d", "aten.upsample_nearest2d", "aten.upsample_nearest2d.vec",
          "aten.upsample_bilinear2d", "aten.upsample_bilinear2d.vec",
          "aten.upsample_nearest2d_backward", "aten.upsample_bilinear2d_backward", "aten.cat",
          "aten.constant_pad_nd", "aten.detach", "aten.alias"})
      add(name, {0b1, 0b1});
    for (const char* name : {"aten.native_batch_norm_backward", "aten.avg_pool2d_backward",
                             "aten._adaptive_avg_pool2d_backward"})
      add(name, {0b11, 0b1});
    add("aten.max_pool2d_with_indices", {0b1, 0b11});
    add("aten.max_pool2d_with_indices_backward", {0b10000011, 0b1});
    return images;
  }();
  const auto found = table->find(&op);
  return found == table->end() ? nullptr : &found->second;
}

bool is_called(const Node& node, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return node.op().name() == name; });
}

/// The argument that says which layout a copy gets; null if the operator is no copy.
const Argument* format_of_copy(const Node& node) {
  if (is_called(node, {"aten.clone"})) return &node.args()[1];
  return is_called(node, {"aten._to_copy"}) ? &node.args()[6] : nullptr;
}

bool says(const Argument& format, at::MemoryFormat wanted) {
  return format.is_constant() && format.constant().isInt() &&
         format.constant().toInt() == static_cast<int64_t>(wanted);
}

bool keeps_layout(const Argument& format) {
  return (format.is_constant() && format.constant().isNone()) ||
         says(format, at::MemoryFormat::Preserve);
}

std::optional<LayoutFlow> flow_by_table(const Node& node, const Images& images) {
  LayoutFlow flow;
  bool are_images = true;
  for (size_t i = 0; i < node.args().size(); ++i) {
    if ((images.arguments >> i & 1) == 0) continue;
    node.args()[i].for_each_value([&](Value* value) {
      are_images = are_images && is_image(value);
      flow.operands.push_back(value);
    });
  }
  for (size_t i = 0; i < node.results().size(); ++i) {
    Value* result = node.results()[i];
    if (result == nullptr) continue;
    if ((images.results >> i & 1) != 0) {
      are_images = are_images && is_image(result);
      flow.results.push_back(result);
    } else if (static_cast<int32_t>(i) == images.aside) {
      flow.asides.push_back(result);
    }
  }
  if (!are_images || flow.operands.empty()) return std::nullopt;
  return flow;
}

/// Operands that are broadcast may lie in any way.
std::optional<LayoutFlow> flow_elementwise(const Node& node) {
  LayoutFlow flow;
  for (Value* result : node.results()) {
    if (!is_image(result) || result->meta.sizes != node.result(0)->meta.sizes) return std::nullopt;
    flow.results.push_back(result);
  }
  if (flow.results.empty()) return std::nullopt;
  bool has_lists = false;
  for (const Argument& argument : node.args()) has_lists |= argument.is_list();
  node.for_each_operand([&](Value* value) {
    if (value->meta.sizes == node.result(0)->meta.sizes) flow.operands.push_back(value);
  });
  if (has_lists || flow.operands.empty()) return std::nullopt;
  return flow;
}

}  // namespace

std::optional<LayoutFlow> layout_flow(const Node& node) {
  if (!node.op().in_dispatcher() || ops::is_ordered(node)) return std::nullopt;
  if (const Images* images = images_of(node.op())) return flow_by_table(node, *images);
  if (const Argument* format = format_of_copy(node))
    return keeps_layout(*format) ? flow_elementwise(node) : std::nullopt;
  const ops::OpFacts& facts = ops::facts(node.op());
  const bool is_elementwise = facts.op_class == ops::OpClass::Pointwise && facts.writes.empty() &&
                              facts.view == ops::ViewKind::None;
  return is_elementwise ? flow_elementwise(node) : std::nullopt;
}

std::optional<int64_t> first_channel(const Node& node) {
  if (!is_called(node, {"aten.slice.Tensor"}) || !is_image(node.result())) return std::nullopt;
  const auto number = [&](size_t argument, int64_t otherwise) {
    const c10::IValue& constant = node.args()[argument].constant();
    return constant.isNone() ? otherwise : constant.isInt() ? constant.toInt() : -1;
  };
  for (size_t i = 1; i < node.args().size(); ++i) {
    if (!node.args()[i].is_constant()) return std::nullopt;
  }
  const int64_t start = number(2, 0);
  if (number(1, -1) != 1 || number(4, 1) != 1 || start < 0) return std::nullopt;
  const bool has_many =
      node.result()->meta.sizes[1].is_fixed() && node.result()->meta.sizes[1].fixed() > 1;
  return has_many ? std::optional<int64_t>(start) : std::nullopt;
}

bool takes_any_layout(const Node& node, const Value& value) {
  if (is_called(node, {"aten.sum", "aten.mean", "aten.sum.dim_IntList", "aten.mean.dim"}))
    return true;
  if (const Argument* format = format_of_copy(node))
    return says(*format, at::MemoryFormat::Contiguous);
  if (images_of(node.op()) != nullptr) return false;
  // A smaller operand that is broadcast.
  const std::optional<LayoutFlow> flow = layout_flow(node);
  return flow &&
         std::find(flow->operands.begin(), flow->operands.end(), &value) == flow->operands.end();
}

}  // namespace ahead::passes
