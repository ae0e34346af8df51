#pragma once

#include <string>
#include <vector>

#include "ahead/graph.h"

namespace ahead {

/// Writes a graph, or pieces of it, in the text form. Values are named by their position in the
/// program. A broken graph is written as well as can be: a value it does not define is `%?`.
class Printer {
 public:
  struct Options {
    bool debug_info = true;  ///< sequence numbers, provenance and places
    bool sub_graphs = true;  ///< in full, else as `graph(…)`
  };

  explicit Printer(const Graph& graph);
  Printer(const Graph& graph, Options options);

  void append_graph(std::string& out) const;
  void append_input(std::string& out, const Graph::Input& input) const;
  void append_output(std::string& out, const Graph::Output& output) const;
  /// Those that a graph with changing sizes was made for, behind their input.
  void append_example_sizes(std::string& out) const;
  /// Appends one statement, without indentation and end of line.
  void append_node(std::string& out, const Node& node) const;
  void append_name(std::string& out, const Value* value) const;

 private:
  struct Name {
    const Value* value = nullptr;
    uint32_t number = 0;
  };

  Printer(const Graph& graph, Options options, size_t depth);
  void name_values();
  void append_results(std::string& out, const Node& node) const;
  void append_result(std::string& out, const Value* value) const;
  void append_arguments(std::string& out, const Node& node) const;
  void append_argument(std::string& out, const Argument& argument, const c10::Type* type) const;
  void append_attributes(std::string& out, const Node& node) const;
  void append_indent(std::string& out, size_t extra = 0) const;
  void append_entries(std::string& out, const std::vector<std::string>& entries) const;

  const Graph& graph_;
  const Options options_;
  const size_t depth_;       ///< how many graphs this one is nested in
  std::vector<Name> names_;  ///< by Value::id()
};

/// Appends the part of a tensor's metadata that describes its memory: all but requires_grad.
void append_layout(std::string& out, const TensorMeta& meta);

}  // namespace ahead
