#include "export/name_inputs.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "ahead/errors.h"
#include "ir/copy.h"

namespace ahead::exporting {
namespace {

using InputKind = GraphSignature::InputKind;
using OutputKind = GraphSignature::OutputKind;

std::string name_at(const std::vector<std::string>& names, size_t index, const char* otherwise) {
  return index < names.size() ? names[index] : otherwise + std::to_string(index);
}

void check_number(const std::vector<std::string>& names, size_t count, const char* which) {
  if (names.empty() || names.size() == count) return;
  throw UserError("export", std::string("ExportOptions::") + which + ": " +
                                std::to_string(names.size()) + " names for " +
                                std::to_string(count) + " tensors. Name each, or none.");
}

/// Writes the graph anew with its inputs and outputs in the order of a signature.
class InputNamer {
 public:
  InputNamer(const TracedModule& traced, const aot::ExportOptions& options)
      : traced_(traced),
        old_(traced.graph),
        options_(options),
        map_(old_.value_capacity(), nullptr),
        new_position_(old_.inputs().size(), -1) {
    for (size_t i = 0; i < old_.inputs().size(); ++i) {
      const Graph::Input& input = old_.inputs()[i];
      if (input.slot.kind == Slot::Kind::Captured)
        captured_.emplace(input.captured.unsafeGetTensorImpl(), i);
    }
  }

  aot::ExportedModule run() {
    add_state(traced_.state.parameters, InputKind::Parameter);
    add_state(traced_.state.buffers, InputKind::Buffer);
    add_constants();
    add_user_inputs();
    find_contents();
    add_tangents();
    for (const Node& node : old_.nodes()) {
      if (written_input(node) == nullptr) copy_node(made_.graph, node, map_);
    }
    add_mutations();
    add_user_outputs();
    add_gradients();
    return std::move(made_);
  }

 private:
  Slot next_primal() const {
    return {Slot::Kind::Primal, static_cast<int32_t>(made_.graph.inputs().size())};
  }

  void add_input(size_t old, InputKind kind, std::string name, Slot slot,
                 std::vector<std::string> also = {}) {
    const Value* value = old_.inputs()[old].value;
    new_position_[old] = static_cast<int32_t>(made_.graph.inputs().size());
    map_[value->id()] = made_.graph.add_input(slot, value->meta);
    made_.signature.inputs.push_back({kind, std::move(name), std::move(also)});
  }

  void add_state(const std::vector<NamedTensor>& state, InputKind kind) {
    for (const NamedTensor& named : state) {
      const auto met = captured_.find(named.tensor.unsafeGetTensorImpl());
      if (met != captured_.end()) {
        add_input(met->second, kind, named.name, next_primal(), named.also);
      } else {
        made_.graph.add_input(next_primal(), TensorMeta::of(named.tensor));
        made_.signature.inputs.push_back({kind, named.name, named.also});
      }
      made_.tensors.push_back(named.tensor);
    }
  }

  void add_constants() {
    size_t count = 0;
    for (size_t i = 0; i < old_.inputs().size(); ++i) {
      const Graph::Input& input = old_.inputs()[i];
      if (input.slot.kind != Slot::Kind::Captured || new_position_[i] >= 0) continue;
      add_input(i, InputKind::Constant, "constant" + std::to_string(count++), next_primal());
      made_.tensors.push_back(input.captured.detach());
    }
  }

  void add_user_inputs() {
    for (size_t i = 0; i < old_.inputs().size(); ++i) {
      const Slot slot = old_.inputs()[i].slot;
      if (slot.kind != Slot::Kind::Primal) continue;
      const auto index = static_cast<size_t>(slot.index);
      add_input(i, InputKind::UserInput, name_at(options_.input_names, index, "arg"),
                next_primal());
    }
    check_number(options_.input_names, made_.signature.user_inputs().size(), "input_names");
  }

  /// Their slots name positions of outputs: results come behind mutations.
  void add_tangents() {
    const auto num_mutations = std::count_if(contents_.begin(), contents_.end(),
                                             [](const auto* output) { return output != nullptr; });
    for (size_t i = 0; i < old_.inputs().size(); ++i) {
      const Slot slot = old_.inputs()[i].slot;
      if (slot.kind != Slot::Kind::Tangent) continue;
      const int32_t result = old_.outputs()[static_cast<size_t>(slot.index)].slot.index;
      add_input(i, InputKind::Tangent,
                name_at(options_.output_names, static_cast<size_t>(result), "out"),
                {Slot::Kind::Tangent, static_cast<int32_t>(num_mutations) + result});
    }
  }

  void add_output(const Graph::Output& old, Slot slot, OutputKind kind, std::string name) {
    Value* value = old.value == nullptr ? nullptr : map_[old.value->id()];
    made_.graph.add_output(value, slot, old.requires_grad);
    made_.signature.outputs.push_back({kind, std::move(name)});
  }

  /// The outputs that say something about inputs, by the new position of these.
  std::vector<const Graph::Output*> outputs_about_inputs(Slot::Kind kind) const {
    std::vector<const Graph::Output*> about(made_.graph.inputs().size(), nullptr);
    for (const Graph::Output& output : old_.outputs()) {
      if (output.slot.kind != kind) continue;
      about[static_cast<size_t>(new_position_[static_cast<size_t>(output.slot.index)])] = &output;
    }
    return about;
  }

  /// The input that a node writes to when the backward of a custom function runs; null: none. A
  /// tangent is left to the node.
  const Graph::Input* written_input(const Node& node) const {
    static const Operator* const copy = Operator::find("aten.copy_");
    if (&node.op() != copy || node.args()[0].value()->producer() != nullptr) return nullptr;
    const Graph::Input& input = old_.inputs()[node.args()[0].value()->index()];
    return input.slot.kind == Slot::Kind::Tangent ? nullptr : &input;
  }

  void find_contents() {
    contents_ = outputs_about_inputs(Slot::Kind::MutatedInput);
    for (const Node& node : old_.nodes()) {
      if (const Graph::Input* input = written_input(node)) {
        backward_contents_.push_back({node.args()[1].value(), {}});
        contents_[static_cast<size_t>(new_position_[input->value->index()])] =
            &backward_contents_.back();
      }
    }
    for (size_t i = 0; i < traced_.assigned.size(); ++i) {
      const Slot slot{Slot::Kind::Output, static_cast<int32_t>(traced_.num_results + i)};
      contents_[position_of_state(traced_.assigned[i])] = &old_output(slot);
    }
  }

  const Graph::Output& old_output(Slot slot) const {
    return old_.outputs()[static_cast<size_t>(old_.find_output(slot))];
  }

  void add_mutations() {
    for (size_t i = 0; i < contents_.size(); ++i) {
      if (contents_[i] == nullptr) continue;
      const GraphSignature::Input& input = made_.signature.inputs[i];
      add_output(*contents_[i], {Slot::Kind::MutatedInput, static_cast<int32_t>(i)},
                 mutation_of(input), input.name);
    }
  }

  size_t position_of_state(const at::Tensor& tensor) const {
    for (size_t i = 0; i < made_.tensors.size(); ++i) {
      if (made_.tensors[i].is_same(tensor)) return i;
    }
    throw InternalError("export", "a buffer was assigned that the module does not have.");
  }

  OutputKind mutation_of(const GraphSignature::Input& input) const {
    switch (input.kind) {
      case InputKind::Parameter:
        if (!options_.trace_joint) return OutputKind::ParameterMutation;
        throw Unsupported("export", "\"" + input.name +
                                        "\": Found a graph input that requires gradients, and "
                                        "received a mutation: the module writes to its parameter. "
                                        "Export it without trace_joint, or write outside.");
      case InputKind::Buffer:
        return OutputKind::BufferMutation;
      case InputKind::UserInput:
        return OutputKind::UserInputMutation;
      default:
        throw Unsupported("export", meta_text(input) +
                                        ": the module writes to a tensor that it has not "
                                        "registered. Register it with register_buffer().");
    }
  }

  std::string meta_text(const GraphSignature::Input& input) const {
    const auto position = static_cast<size_t>(made_.signature.find_input(input.name));
    return made_.graph.inputs()[position].value->meta.str();
  }

  void add_user_outputs() {
    for (size_t i = 0; i < traced_.num_results; ++i) {
      const Slot slot{Slot::Kind::Output, static_cast<int32_t>(i)};
      if (options_.trace_joint && options_.no_tangents &&
          static_cast<int64_t>(i) == options_.output_loss_index) {
        made_.signature.loss_output = static_cast<int64_t>(made_.graph.outputs().size());
      }
      add_output(old_output(slot), slot, OutputKind::UserOutput,
                 name_at(options_.output_names, i, "out"));
    }
    check_number(options_.output_names, traced_.num_results, "output_names");
  }

  void add_gradients() {
    if (!options_.trace_joint) return;
    const std::vector<const Graph::Output*> gradients = outputs_about_inputs(Slot::Kind::GradOf);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const GraphSignature::Input& input = made_.signature.inputs[i];
      const bool is_differentiable = made_.graph.inputs()[i].value->meta.requires_grad;
      if (!is_differentiable || input.kind == InputKind::Tangent) continue;
      const bool has_gradient = gradients[i] != nullptr && gradients[i]->value != nullptr;
      if (has_gradient && input.kind == InputKind::Constant) {
        throw Unsupported("export", meta_text(input) +
                                        ": the loss depends on a tensor that requires grad and is "
                                        "no parameter of the module. Register it with "
                                        "register_parameter(), or detach it.");
      }
      if (input.kind == InputKind::Constant) continue;
      if (!has_gradient && options_.no_tangents && input.kind == InputKind::Parameter) {
        throw Unsupported("export", "\"" + input.name +
                                        "\": Found a parameter that did not receive a gradient: "
                                        "the loss does not depend on it. Use it, or freeze it with "
                                        "requires_grad_(false).");
      }
      const Graph::Output none{nullptr, {}};
      add_output(has_gradient ? *gradients[i] : none, {Slot::Kind::GradOf, static_cast<int32_t>(i)},
                 OutputKind::Gradient, input.name);
    }
  }

  const TracedModule& traced_;
  const Graph& old_;
  const aot::ExportOptions& options_;
  ValueMap map_;
  std::vector<int32_t> new_position_;  ///< by old position; -1: not added yet
  std::unordered_map<const c10::TensorImpl*, size_t> captured_;
  /// By new position of an input: the output that holds its new contents, or null.
  std::vector<const Graph::Output*> contents_;
  std::deque<Graph::Output> backward_contents_;  ///< those that a backward writes
  aot::ExportedModule made_;
};

}  // namespace

aot::ExportedModule name_inputs(const TracedModule& traced, const aot::ExportOptions& options) {
  return InputNamer(traced, options).run();
}

}  // namespace ahead::exporting
