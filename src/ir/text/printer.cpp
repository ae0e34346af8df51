#include "ir/text/printer.h"

#include <ATen/core/function_schema.h>

#include <algorithm>

#include "base/text.h"
#include "ir/constants.h"
#include "ir/names.h"
#include "ir/tensor_meta.h"

namespace ahead {
namespace {

/// Inputs and outputs that fit in so many characters stand on one line, else on one line each.
constexpr size_t entries_on_one_line = 88;

void append_dim(std::string& out, Dim dim) {
  if (dim.is_fixed()) {
    append_int(out, dim.fixed());
  } else {
    out += dim.str();
  }
}

void append_dims(std::string& out, const TensorMeta::Dims& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) out += ", ";
    append_dim(out, dims[i]);
  }
}

void append_slot(std::string& out, Slot slot) {
  out.append(facts(slot.kind).name).append(" ");
  append_int(out, slot.index);
}

void append_requires_grad(std::string& out, bool requires_grad) {
  if (requires_grad) out += " requires_grad";
}

}  // namespace

void append_layout(std::string& out, const TensorMeta& meta) {
  const std::string_view dtype = dtype_name(meta.dtype);
  out.append(dtype.empty() ? "?" : dtype).append("[");
  append_dims(out, meta.sizes);
  out += ']';
  if (meta.strides != contiguous_strides(meta.sizes)) {
    out += '{';
    append_dims(out, meta.strides);
    out += '}';
  }
  if (meta.offset != 0) {
    out += '+';
    append_dim(out, meta.offset);
  }
  if (meta.device != at::Device(at::kCPU)) out.append(" @").append(meta.device.str());
}

std::string TensorMeta::str() const {
  std::string out;
  append_layout(out, *this);
  append_requires_grad(out, requires_grad);
  return out;
}

std::string Slot::str() const {
  std::string out;
  append_slot(out, *this);
  return out;
}

std::string Graph::str() const {
  std::string out;
  Printer(*this).append_graph(out);
  return out;
}

Printer::Printer(const Graph& graph) : Printer(graph, Options()) {}

Printer::Printer(const Graph& graph, Options options) : Printer(graph, options, 0) {}

Printer::Printer(const Graph& graph, Options options, size_t depth)
    : graph_(graph), options_(options), depth_(depth), names_(graph.value_capacity()) {
  name_values();
}

void Printer::name_values() {
  uint32_t next = 0;
  auto name = [&](const Value* value) {
    if (value != nullptr && value->id() < names_.size()) names_[value->id()] = {value, next++};
  };
  for (const Graph::Input& input : graph_.inputs()) name(input.value);
  // A broken list may run in circles.
  size_t left = graph_.num_nodes();
  for (const Node* node = graph_.first(); node != nullptr && left != 0;
       node = node->next(), --left) {
    for (const Value* result : node->results()) name(result);
  }
}

void Printer::append_name(std::string& out, const Value* value) const {
  out += '%';
  if (value != nullptr && value->id() < names_.size() && names_[value->id()].value == value) {
    append_int(out, names_[value->id()].number);
  } else {
    out += '?';
  }
}

void Printer::append_indent(std::string& out, size_t extra) const {
  out.append(2 * depth_ + extra, ' ');
}

void Printer::append_entries(std::string& out, const std::vector<std::string>& entries) const {
  size_t length = 0;
  for (const std::string& entry : entries) length += entry.size() + 2;
  const bool one_line = length <= entries_on_one_line;
  out += '(';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i != 0) out += one_line ? ", " : ",";
    if (!one_line) {
      out += '\n';
      append_indent(out, 4);
    }
    out += entries[i];
  }
  out += ')';
}

void Printer::append_input(std::string& out, const Graph::Input& input) const {
  append_name(out, input.value);
  if (input.value != nullptr) {
    out += ": ";
    append_layout(out, input.value->meta);
  }
  out += ' ';
  append_slot(out, input.slot);
  if (input.slot.kind == Slot::Kind::Sizes) append_example_sizes(out);
  append_requires_grad(out, input.value != nullptr && input.value->meta.requires_grad);
}

void Printer::append_example_sizes(std::string& out) const {
  if (!options_.debug_info || graph_.example_sizes().empty()) return;
  out += " like [";
  append_dims(out, Dims(graph_.example_sizes()));
  out += ']';
}

void Printer::append_output(std::string& out, const Graph::Output& output) const {
  if (output.value == nullptr) {
    out += "none";
  } else {
    append_name(out, output.value);
  }
  out += ' ';
  append_slot(out, output.slot);
  append_requires_grad(out, output.requires_grad);
}

void Printer::append_graph(std::string& out) const {
  std::vector<std::string> inputs;
  for (const Graph::Input& input : graph_.inputs()) append_input(inputs.emplace_back(), input);
  std::vector<std::string> outputs;
  for (const Graph::Output& output : graph_.outputs())
    append_output(outputs.emplace_back(), output);

  out += "graph";
  append_entries(out, inputs);
  out += depth_ == 0 ? ":\n" : ": {\n";
  for (const Node& node : graph_.nodes()) {
    append_indent(out, 2);
    append_node(out, node);
    out += '\n';
  }
  append_indent(out, 2);
  out += "return ";
  append_entries(out, outputs);
  out += '\n';
  if (depth_ != 0) {
    append_indent(out);
    out += '}';
  }
}

void Printer::append_node(std::string& out, const Node& node) const {
  append_results(out, node);
  out.append(node.op().name()).append("(");
  append_arguments(out, node);
  out += ')';
  append_attributes(out, node);
}

void Printer::append_result(std::string& out, const Value* value) const {
  if (value == nullptr) {
    out += '_';
    return;
  }
  append_name(out, value);
  out += ": ";
  append_layout(out, value->meta);
  append_requires_grad(out, value->meta.requires_grad);
}

void Printer::append_results(std::string& out, const Node& node) const {
  const auto& results = node.results();
  size_t next = 0;
  const char* separator = "";
  for (int32_t length : node.return_lengths()) {
    out += separator;
    separator = ", ";
    const size_t end = std::min(results.size(), next + (length < 0 ? 1 : size_t(length)));
    if (length >= 0) out += '[';
    for (size_t i = next; i < end; ++i) {
      if (i != next) out += ", ";
      append_result(out, results[i]);
    }
    if (length >= 0) out += ']';
    next = end;
  }
  if (!node.return_lengths().empty()) out += " = ";
}

void Printer::append_arguments(std::string& out, const Node& node) const {
  const std::vector<c10::Argument>* expected =
      node.op().in_dispatcher() ? &node.op().schema().arguments() : nullptr;
  for (size_t i = 0; i < node.args().size(); ++i) {
    if (i != 0) out += ", ";
    const bool known = expected != nullptr && i < expected->size();
    append_argument(out, node.args()[i], known ? (*expected)[i].real_type().get() : nullptr);
  }
}

void Printer::append_argument(std::string& out, const Argument& argument,
                              const c10::Type* type) const {
  if (argument.is_value()) {
    append_name(out, argument.value());
  } else if (argument.is_constant()) {
    append_constant(out, argument.constant(), type);
  } else if (argument.is_list()) {
    out += '[';
    for (size_t i = 0; i < argument.list().size(); ++i) {
      if (i != 0) out += ", ";
      append_argument(out, argument.list()[i], nullptr);
    }
    out += ']';
  } else if (argument.graph() == nullptr || !options_.sub_graphs) {
    out += "graph(…)";
  } else {
    Printer(*argument.graph(), options_, depth_ + 1).append_graph(out);
  }
}

void Printer::append_attributes(std::string& out, const Node& node) const {
  if (node.phase == Phase::Backward) out.append(" !").append(backward_name);
  for (const TagName& tag : tag_names()) {
    if (node.has(tag.tag)) out.append(" !").append(tag.name);
  }
  if (!options_.debug_info) return;
  if (node.sequence >= 0) {
    out += " seq=";
    append_int(out, node.sequence);
  }
  if (node.provenance != nullptr) {
    out += " from=";
    append_quoted(out, *node.provenance);
  }
  if (node.place != nullptr) {
    out += " at=";
    append_quoted(out, *node.place);
  }
}

}  // namespace ahead
