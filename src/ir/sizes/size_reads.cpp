#include "ir/sizes/size_reads.h"

#include <algorithm>

#include "ahead/errors.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/layout.h"
#include "ir/sizes/sized_constants.h"

namespace ahead {
namespace {

uint32_t behind_last(const std::vector<uint32_t>& symbols) {
  const auto last = std::max_element(symbols.begin(), symbols.end());
  return last == symbols.end() ? 0 : *last + 1;
}

}  // namespace

bool reads_size(const Node& node) {
  static const Operator* const read = Operator::find("ahead.local_scalar_dense");
  return &node.op() == read;
}

bool reads_sizes(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (reads_size(node)) return true;
  }
  return false;
}

uint32_t size_read_by(const Node& node) {
  const c10::IValue& named = node.args()[1].constant();
  std::vector<uint32_t> symbols;
  if (named.isSymInt()) to_dim(named.toSymInt()).expression().add_symbols(symbols);
  const bool is_one = symbols.size() == 1 &&
                      to_dim(named.toSymInt()).expression() == SizeExpression::symbol(symbols[0]);
  if (is_one) return symbols[0];
  throw UserError("sizes", node.op().name() +
                               ": it has to name the size that it reads, such as size(\"s0\").");
}

uint32_t count_given_sizes(const Graph& graph) {
  const int64_t position = graph.find_input({Slot::Kind::Sizes, 0});
  if (position < 0) return 0;
  const Dim count = graph.inputs()[static_cast<size_t>(position)].value->meta.numel();
  return static_cast<uint32_t>(count.fixed());
}

uint32_t count_needed_sizes(const c10::IValue& constant) {
  if (!has_sizes(constant)) return 0;
  std::vector<uint32_t> symbols;
  const auto add = [&](const c10::SymInt& number) {
    to_dim(number).expression().add_symbols(symbols);
  };
  if (constant.isSymFloat()) {
    const FloatNode* node = FloatNode::in(constant.toSymFloat());
    if (node != nullptr) node->expression().add_symbols(symbols);
  } else if (constant.isSymInt()) {
    add(constant.toSymInt());
  } else {
    for (const c10::IValue& item : constant.toListRef()) {
      if (item.isSymInt()) add(item.toSymInt());
    }
  }
  return behind_last(symbols);
}

uint32_t count_needed_sizes(const Dims& dims) {
  std::vector<uint32_t> symbols;
  for (const Dim& dim : dims) {
    if (!dim.is_fixed()) dim.expression().add_symbols(symbols);
  }
  return behind_last(symbols);
}

void refuse_size_reads(const Graph& graph, std::string_view stage,
                       const std::string& what_to_do) {
  if (!reads_sizes(graph)) return;
  throw Unsupported(stage,
                    "ahead.local_scalar_dense: the graph reads a size from a tensor while it "
                    "runs. " +
                        what_to_do);
}

}  // namespace ahead
