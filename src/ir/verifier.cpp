#include <algorithm>
#include <functional>
#include <optional>

#include "ahead/errors.h"
#include "ahead/graph.h"
#include "ir/names.h"
#include "ir/signature.h"
#include "ir/sizes/size_reads.h"
#include "ir/slots.h"
#include "ir/text/printer.h"

namespace ahead {
namespace {

std::string meta_problem(const TensorMeta& meta) {
  auto negative = [](Dim number) { return number.is_fixed() && number.fixed() < 0; };
  if (dtype_name(meta.dtype).empty()) return "its dtype is undefined";
  if (meta.sizes.size() != meta.strides.size()) {
    return "it has " + std::to_string(meta.sizes.size()) + " sizes, but " +
           std::to_string(meta.strides.size()) + " strides";
  }
  if (std::any_of(meta.sizes.begin(), meta.sizes.end(), negative)) return "a size is negative";
  if (std::any_of(meta.strides.begin(), meta.strides.end(), negative))
    return "a stride is negative";
  if (negative(meta.offset)) return "its offset is negative";
  return {};
}

/// Whether a value of one metadata may stand for one of the other. The storage offset may differ.
bool interchangeable(const TensorMeta& a, const TensorMeta& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides;
}

/// Checks one graph. Each method is one group of rules; the first broken rule throws.
class Verifier {
 public:
  /// `where` says which graph this is, for sub-graphs.
  Verifier(const Graph& graph, std::string where) : graph_(graph), where_(std::move(where)) {}

  void check() {
    check_links();
    check_inputs();
    for (size_t i = 0; i < order_.size(); ++i) check_node(*order_[i], i);
    check_outputs();
    check_uses();
    check_slots(graph_.inputs(), &SlotFacts::on_inputs);
    check_slots(graph_.outputs(), &SlotFacts::on_outputs);
    if (names_own_positions(graph_)) check_positions();
    check_writes();
  }

 private:
  void check_links();
  void check_inputs();
  void check_node(const Node& node, size_t position);
  void check_results(const Node& node);
  void check_operand(const Node& node, const Value* value);
  void check_call(const Node& node, size_t position);
  void check_known_sizes(const Node& node);
  void check_size_read(const Node& node);
  void check_outputs();
  void check_uses();
  void check_value_uses(const Value* value, const c10::SmallVector<const Node*, 2>& found,
                        uint32_t found_outputs);
  template <class Entries>
  void check_slots(const Entries& entries, bool SlotFacts::*legal);
  void check_positions();
  void check_writes();

  void define(const Value* value);
  bool is_defined(const Value* value) const;

  std::string name(const Value* value) const;
  [[noreturn]] void fail(const std::string& subject, const std::string& problem,
                         const std::string& excerpt) const;
  [[noreturn]] void fail_at(const Node& node, const std::string& problem) const;
  [[noreturn]] void fail_at(const Graph::Input& input, const std::string& problem) const;
  [[noreturn]] void fail_at(const Graph::Output& output, const std::string& problem) const;
  [[noreturn]] void fail_at(const Value& value, const std::string& problem) const;

  const Graph& graph_;
  const std::string where_;
  std::vector<const Node*> order_;
  std::vector<const Value*> defined_;  ///< by Value::id()
  /// Where the graph reads sizes: how many are known before the node that is looked at.
  std::optional<uint32_t> num_sizes_;
};

// Messages.

/// Shows a line and up to three on either side.
std::string excerpt(size_t count, size_t culprit, const std::function<std::string(size_t)>& line) {
  constexpr size_t around = 3;
  std::string text;
  for (size_t i = culprit - std::min(culprit, around); i < std::min(count, culprit + around + 1);
       ++i) {
    text.append(i == culprit ? "\n  >> " : "\n     ").append(line(i));
  }
  return text;
}

Printer short_printer(const Graph& graph) {
  Printer::Options options;
  options.sub_graphs = false;
  return Printer(graph, options);
}

std::string Verifier::name(const Value* value) const {
  std::string text;
  Printer(graph_).append_name(text, value);
  return text;
}

void Verifier::fail(const std::string& subject, const std::string& problem,
                    const std::string& excerpt) const {
  throw InternalError("verify", where_ + subject + ": " + problem + "." + excerpt);
}

void Verifier::fail_at(const Node& node, const std::string& problem) const {
  const Printer printer = short_printer(graph_);
  std::vector<const Node*> nodes = order_;
  auto position = std::find(nodes.begin(), nodes.end(), &node);
  if (position == nodes.end()) position = nodes.insert(nodes.end(), &node);
  fail(node.op().name(), problem,
       excerpt(nodes.size(), static_cast<size_t>(position - nodes.begin()), [&](size_t i) {
         std::string line;
         printer.append_node(line, *nodes[i]);
         return line;
       }));
}

void Verifier::fail_at(const Graph::Input& input, const std::string& problem) const {
  const Printer printer = short_printer(graph_);
  const auto position = static_cast<size_t>(&input - graph_.inputs().data());
  fail("input " + std::to_string(position) + ", " + input.slot.str(), problem,
       excerpt(graph_.inputs().size(), position, [&](size_t i) {
         std::string line;
         printer.append_input(line, graph_.inputs()[i]);
         return line;
       }));
}

void Verifier::fail_at(const Graph::Output& output, const std::string& problem) const {
  const Printer printer = short_printer(graph_);
  const auto position = static_cast<size_t>(&output - graph_.outputs().data());
  fail("output " + std::to_string(position) + ", " + output.slot.str(), problem,
       excerpt(graph_.outputs().size(), position, [&](size_t i) {
         std::string line;
         printer.append_output(line, graph_.outputs()[i]);
         return line;
       }));
}

void Verifier::fail_at(const Value& value, const std::string& problem) const {
  if (value.producer() != nullptr) fail_at(*value.producer(), problem);
  fail_at(graph_.inputs()[value.index()], problem);
}

// Rules.

void Verifier::check_links() {
  const Node* previous = nullptr;
  for (const Node* node = graph_.first(); node != nullptr; node = node->next()) {
    if (order_.size() == graph_.num_nodes()) {
      fail("node list", "it is longer than the number of nodes, " + std::to_string(order_.size()),
           "");
    }
    order_.push_back(node);
    if (node->prev() != previous) fail_at(*node, "the node before it in the list is another one");
    previous = node;
  }
  if (order_.size() != graph_.num_nodes()) {
    fail("node list",
         "it holds " + std::to_string(order_.size()) + " of " + std::to_string(graph_.num_nodes()) +
             " nodes",
         "");
  }
  if (graph_.last() != previous) fail("node list", "its last node is another one", "");
}

void Verifier::define(const Value* value) {
  defined_[value->id()] = value;
}

bool Verifier::is_defined(const Value* value) const {
  return value != nullptr && value->id() < defined_.size() && defined_[value->id()] == value;
}

void Verifier::check_inputs() {
  if (reads_sizes(graph_)) num_sizes_ = count_given_sizes(graph_);
  defined_.resize(graph_.value_capacity(), nullptr);
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const Graph::Input& input = graph_.inputs()[i];
    if (input.value == nullptr) fail_at(input, "it has no value");
    if (input.value->producer() != nullptr || input.value->index() != i) {
      fail_at(input, "its value says that it is made elsewhere");
    }
    const std::string problem = meta_problem(input.value->meta);
    if (!problem.empty()) fail_at(input, problem);
    define(input.value);
  }
}

void Verifier::check_operand(const Node& node, const Value* value) {
  if (!is_defined(value)) {
    fail_at(node, "it takes a value that no input and no earlier node of this graph defines");
  }
  const Node* producer = value->producer();
  if (producer != nullptr && producer->phase == Phase::Backward && node.phase == Phase::Forward) {
    fail_at(node, "a node of the forward phase takes a result of " + producer->op().name() +
                      ", which is of the backward phase");
  }
}

void Verifier::check_node(const Node& node, size_t position) {
  uint16_t known_tags = 0;
  for (const TagName& tag : tag_names()) known_tags |= static_cast<uint16_t>(tag.tag);
  if ((node.tags() & ~known_tags) != 0) fail_at(node, "it has a tag that does not exist");
  const std::string problem = arguments_problem(node);
  if (!problem.empty()) fail_at(node, problem);
  node.for_each_operand([&](const Value* value) { check_operand(node, value); });
  check_results(node);
  if (num_sizes_) check_known_sizes(node);
  if (!node.op().in_dispatcher()) check_call(node, position);
}

/// Sizes that are read are not known before.
void Verifier::check_known_sizes(const Node& node) {
  if (reads_size(node)) return check_size_read(node);
  const auto check = [&](uint32_t needed) {
    if (needed <= *num_sizes_) return;
    fail_at(node, "it takes the size s" + std::to_string(needed - 1) + ", but " +
                      std::to_string(*num_sizes_) + " are known here");
  };
  for (const Argument& argument : node.args()) {
    if (argument.is_constant()) check(count_needed_sizes(argument.constant()));
  }
  for (const Value* result : node.results()) {
    if (result == nullptr) continue;
    check(count_needed_sizes(result->meta.sizes));
    check(count_needed_sizes(result->meta.strides));
    check(count_needed_sizes(Dims{result->meta.offset}));
  }
}

void Verifier::check_size_read(const Node& node) {
  if (!where_.empty()) fail_at(node, "a sub-graph cannot read sizes");
  const TensorMeta& number = node.args()[0].value()->meta;
  if (number.numel() != 1 || !c10::isIntegralType(number.dtype, /*includeBool=*/false))
    fail_at(node, "it reads a size from " + number.str() + ", which is not an integer");
  const uint32_t symbol = size_read_by(node);
  if (symbol != *num_sizes_) {
    fail_at(node, "it reads the size s" + std::to_string(symbol) + ", but the next one is s" +
                      std::to_string(*num_sizes_));
  }
  ++*num_sizes_;
}

void Verifier::check_results(const Node& node) {
  size_t announced = 0;
  for (int32_t length : node.return_lengths()) announced += length < 0 ? 1 : size_t(length);
  if (announced != node.results().size()) {
    fail_at(node, "its returns add up to " + std::to_string(announced) + " tensors, but it has " +
                      std::to_string(node.results().size()) + " results");
  }
  std::string problem = results_problem(node);
  if (!problem.empty()) fail_at(node, problem);
  for (size_t i = 0; i < node.results().size(); ++i) {
    const Value* result = node.result(i);
    if (result == nullptr) continue;
    if (result->producer() != &node || result->index() != i) {
      fail_at(node, "result " + std::to_string(i) + " says that it is made elsewhere");
    }
    problem = meta_problem(result->meta);
    if (!problem.empty()) fail_at(node, "result " + std::to_string(i) + ": " + problem);
    define(result);
  }
}

void Verifier::check_call(const Node& node, size_t position) {
  const Graph& callee = *node.args()[0].graph();
  Verifier(callee, where_ + "sub-graph of node " + std::to_string(position) + ", ").check();
  auto compare = [&](const char* what, size_t i, const TensorMeta& outer, const TensorMeta& inner) {
    if (interchangeable(outer, inner)) return;
    fail_at(node, std::string(what) + " " + std::to_string(i) + " is " + outer.str() +
                      ", in the sub-graph " + inner.str());
  };
  for (size_t i = 0; i < callee.inputs().size(); ++i) {
    compare("input", i, node.args()[i + 1].value()->meta, callee.inputs()[i].value->meta);
  }
  for (size_t i = 0; i < callee.outputs().size(); ++i) {
    if (node.result(i) == nullptr) continue;
    compare("output", i, node.result(i)->meta, callee.outputs()[i].value->meta);
  }
}

void Verifier::check_outputs() {
  for (const Graph::Output& output : graph_.outputs()) {
    if (output.value != nullptr && !is_defined(output.value)) {
      fail_at(output, "no input and no node of this graph defines its value");
    }
  }
}

void Verifier::check_value_uses(const Value* value, const c10::SmallVector<const Node*, 2>& found,
                                uint32_t found_outputs) {
  const auto& listed = value->users();
  // Usually both are in program order; after rewriting they may be permuted.
  if (!std::equal(found.begin(), found.end(), listed.begin(), listed.end())) {
    std::vector<const Node*> a(found.begin(), found.end());
    std::vector<const Node*> b(listed.begin(), listed.end());
    std::sort(a.begin(), a.end(), std::less<>());
    std::sort(b.begin(), b.end(), std::less<>());
    if (a != b) {
      fail_at(*value, "nodes take " + name(value) + " " + std::to_string(a.size()) +
                          " times, but its list of users names others, " +
                          std::to_string(b.size()) + " of them");
    }
  }
  if (value->output_uses() != found_outputs) {
    fail_at(*value, name(value) + " is a graph output " + std::to_string(found_outputs) +
                        " times, but counts " + std::to_string(value->output_uses()));
  }
}

void Verifier::check_uses() {
  std::vector<c10::SmallVector<const Node*, 2>> users(defined_.size());
  std::vector<uint32_t> outputs(defined_.size(), 0);
  for (const Node* node : order_) {
    node->for_each_operand([&](const Value* value) { users[value->id()].push_back(node); });
  }
  for (const Graph::Output& output : graph_.outputs()) {
    if (output.value != nullptr) ++outputs[output.value->id()];
  }
  for (size_t id = 0; id < defined_.size(); ++id) {
    if (defined_[id] != nullptr) check_value_uses(defined_[id], users[id], outputs[id]);
  }
}

template <class Entries>
void Verifier::check_slots(const Entries& entries, bool SlotFacts::*legal) {
  auto key = [](Slot slot) {
    return (static_cast<uint64_t>(slot.kind) << 32) | static_cast<uint32_t>(slot.index);
  };
  std::vector<uint64_t> seen;
  for (const auto& entry : entries) {
    if (!(facts(entry.slot.kind).*legal)) fail_at(entry, "a slot of this kind does not go here");
    if (entry.slot.index < 0) fail_at(entry, "its index is negative");
    seen.push_back(key(entry.slot));
  }
  std::sort(seen.begin(), seen.end());
  auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice == seen.end()) return;
  for (const auto& entry : entries) {
    if (key(entry.slot) == *twice) fail_at(entry, "another one has the same slot");
  }
}

void Verifier::check_positions() {
  auto check = [&](const auto& entry, SlotFacts::Names names, size_t count, const char* what) {
    if (facts(entry.slot.kind).index_names != names) return;
    if (static_cast<size_t>(entry.slot.index) < count) return;
    fail_at(entry, "it names a position among " + std::to_string(count) + " " + what);
  };
  for (const Graph::Input& input : graph_.inputs()) {
    check(input, SlotFacts::Names::output_position, graph_.outputs().size(), "outputs");
  }
  for (const Graph::Output& output : graph_.outputs()) {
    check(output, SlotFacts::Names::input_position, graph_.inputs().size(), "inputs");
  }
}

/// What an input holds in the end is decided once.
void Verifier::check_writes() {
  static const Operator* const copy = Operator::find("aten.copy_");
  std::vector<bool> is_written(graph_.inputs().size());
  for (const Node* node : order_) {
    if (&node->op() != copy || !node->has(Tag::Effect) || !node->args()[0].is_value()) continue;
    const Value* target = node->args()[0].value();
    if (target->producer() != nullptr) continue;
    if (is_written[target->index()])
      fail_at(*node, name(target) + " was written to by another copy_ already");
    is_written[target->index()] = true;
  }
}

}  // namespace

void Graph::verify() const {
  Verifier(*this, "").check();
}

}  // namespace ahead
