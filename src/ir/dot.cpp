#include <unordered_map>

#include "ahead/graph.h"
#include "base/text.h"
#include "ir/text/printer.h"

namespace ahead {
namespace {

/// Writes one graph in Graphviz's language: a box for every node, an ellipse for every input and
/// output, an edge for every use.
class DotWriter {
 public:
  explicit DotWriter(const Graph& graph) : graph_(graph), printer_(graph) {
    for (const Node& node : graph.nodes()) numbers_.emplace(&node, numbers_.size());
  }

  std::string write() {
    out_ =
        "digraph graph_ {\n"
        "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=monospace, "
        "fontsize=10];\n"
        "  edge [fontname=monospace, fontsize=8];\n";
    inputs();
    cluster(Phase::Forward, "forward", "#dbe9f6");
    cluster(Phase::Backward, "backward", "#fbe3d6");
    outputs();
    for (const Node& node : graph_.nodes()) edges(node);
    return std::move(out_) + "}\n";
  }

 private:
  void inputs() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Graph::Input& input = graph_.inputs()[i];
      ellipse("i" + std::to_string(i), input.slot.str() + "\n" + input.value->meta.str(),
              "#e2f0d9");
    }
  }

  void outputs() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Graph::Output& output = graph_.outputs()[i];
      const std::string name = "o" + std::to_string(i);
      ellipse(name, output.slot.str() + (output.value == nullptr ? "\nundefined" : ""), "#fff2cc");
      if (output.value != nullptr) edge(*output.value, name);
    }
  }

  void ellipse(const std::string& name, const std::string& label, const char* colour) {
    out_.append("  ").append(name).append(" [shape=ellipse, fillcolor=\"").append(colour);
    out_ += "\", label=";
    append_quoted(out_, label);
    out_ += "];\n";
  }

  void cluster(Phase phase, const char* name, const char* colour) {
    std::string boxes;
    for (const Node& node : graph_.nodes()) {
      if (node.phase != phase) continue;
      boxes.append("    ").append(name_of(node)).append(" [label=");
      append_quoted(boxes, label(node));
      boxes += "];\n";
    }
    if (boxes.empty()) return;
    out_.append("  subgraph cluster_").append(name).append(" {\n    label=").append(name);
    out_.append("; style=filled; color=\"").append(colour).append("\";\n").append(boxes);
    out_ += "  }\n";
  }

  std::string label(const Node& node) const {
    std::string text = node.op().name();
    for (const Value* result : node.results()) {
      if (result == nullptr) continue;
      text += '\n';
      printer_.append_name(text, result);
      text.append(": ").append(result->meta.str());
    }
    return text;
  }

  void edges(const Node& node) {
    node.for_each_operand([&](const Value* value) { edge(*value, name_of(node)); });
  }

  void edge(const Value& from, const std::string& to) {
    const Node* producer = from.producer();
    out_.append("  ").append(producer ? name_of(*producer) : "i" + std::to_string(from.index()));
    out_.append(" -> ").append(to);
    if (producer != nullptr && producer->results().size() > 1) {
      out_ += " [label=\"";
      printer_.append_name(out_, &from);
      out_ += "\"]";
    }
    out_ += ";\n";
  }

  std::string name_of(const Node& node) const { return "n" + std::to_string(numbers_.at(&node)); }

  const Graph& graph_;
  const Printer printer_;
  std::unordered_map<const Node*, size_t> numbers_;
  std::string out_;
};

}  // namespace

std::string Graph::dot() const {
  return DotWriter(*this).write();
}

}  // namespace ahead
