#include "fuzz/check.h"

#include <gtest/gtest-spi.h>
#include <torch/csrc/autograd/variable.h>

#include <set>

#include "ahead/ahead.h"
#include "fuzz/eager.h"
#include "fuzz/snapshot.h"
#include "fuzz/transforms.h"
#include "support/eager.h"
#include "support/round_trip.h"

namespace ahead::fuzz {
namespace {

using Kind = Slot::Kind;

/// A difference ends a check.
void expect(bool condition, const std::string& what, const std::string& detail) {
  if (!condition) throw Difference{what, detail};
}

void expect_same(const at::Tensor& expected, const at::Tensor& actual, const std::string& what,
                 const std::string& where) {
  const std::string difference = tensor_difference(expected, actual);
  if (!difference.empty()) throw Difference{what, where + ": " + difference};
}

/// The same but for strides and offset.
void expect_same_values(const at::Tensor& expected, const at::Tensor& actual,
                        const std::string& what, const std::string& where) {
  const auto repack = [](const at::Tensor& tensor) {
    return tensor.defined() ? at::empty(tensor.sizes(), tensor.options()).copy_(tensor.detach())
                            : tensor;
  };
  expect_same(repack(expected), repack(actual), what, where);
}

void expect_reads_back(const Graph& graph) {
  testing::TestPartResultArray failures;
  {
    testing::ScopedFakeTestPartResultReporter collect(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    expect_round_trip(graph);
  }
  if (failures.size() != 0) throw Difference{"round trip", failures.GetTestPartResult(0).message()};
}

/// What the message of an error says, without where it was thrown.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

class Checker {
 public:
  Checker(const Program& program, const Tamper& tamper)
      : program_(program), tamper_(tamper), eager_(program), inputs_(make_inputs(program.inputs)) {}

  Verdict run() {
    at::AutoGradMode mode(!program_.no_grad);
    try {
      compare();
    } catch (const Difference& difference) {
      differ(difference.what, difference.detail);
    } catch (const std::exception& error) {
      differ("check throws", first_line(error));
    }
    return verdict_;
  }

 private:
  void differ(const std::string& what, const std::string& detail) {
    verdict_.kind = Verdict::Kind::Differs;
    verdict_.what = what;
    verdict_.detail = detail;
  }

  void compare() {
    if (!trace()) return;
    expect_reads_back(graph_);
    expect_all_inputs();
    choose_tangents();
    run_eager_backward();
    run_graph();
    for (size_t i = 0; i < outputs_.size(); ++i) compare_output(i);
    expect_all_gradients();
    compare_metadata();
    compare_transforms();
    compare_inputs();
  }

  /// False if there is no graph, rightly so.
  bool trace() {
    const Tensors tensors = tensors_of(inputs_);
    const Snapshot before(inputs_);
    std::string error;
    bool unsupported = false;
    try {
      const aot::FlatFunction function = function_of(program_, tensors);
      const Tensors arguments = arguments_of(program_, tensors);
      graph_ = program_.no_grad ? ahead::trace(function, arguments)
                                : Graph(ahead::trace_joint(function, arguments));
    } catch (const Unsupported& caught) {
      unsupported = true;
      error = first_line(caught);
    } catch (const std::exception& caught) {
      error = first_line(caught);
    }
    const std::string touched = before.difference(inputs_);
    expect(touched.empty(), "trace touches inputs", touched);
    if (error.empty()) {
      verdict_.graph = graph_.str();
      expect(!eager_.threw(), "trace does not throw", "eager: " + eager_.error());
      return true;
    }
    explain(error, unsupported);
    return false;
  }

  void explain(const std::string& error, bool unsupported) {
    if (eager_.threw() || eager_backward_throws()) {
      verdict_.kind = Verdict::Kind::BothThrow;
    } else if (unsupported) {
      verdict_.kind = Verdict::Kind::Unsupported;
    } else {
      throw Difference{"trace throws", error};
    }
    verdict_.what = error;
  }

  bool eager_backward_throws() {
    if (program_.no_grad) return false;
    const Tensors roots = eager_.roots();
    Tensors tangents;
    for (const at::Tensor& root : roots) tangents.push_back(at::ones_like(root));
    try {
      eager_.backward(roots, tangents);
    } catch (const std::exception&) {
      return true;
    }
    return false;
  }

  /// Which of the program's inputs a graph input is.
  size_t position_of(const Graph::Input& input) const {
    int32_t argument = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!program_.inputs[i].captured && input.slot == Slot{Kind::Primal, argument++}) return i;
      if (input.slot.kind == Kind::Captured && input.captured.is_same(inputs_[i].tensor)) return i;
    }
    throw Difference{"captured", input.slot.str() + " is no tensor of the program"};
  }
  size_t position_of(const Slot& output) const {
    return position_of(graph_.inputs().at(static_cast<size_t>(output.index)));
  }

  void expect_all_inputs() {
    for (const Graph::Input& input : graph_.inputs()) {
      if (input.slot.kind == Kind::Tangent) continue;
      const size_t position = position_of(input);
      const bool expected = inputs_[position].tensor.requires_grad();
      expect(input.value->meta.requires_grad == expected, "requires_grad", input.slot.str());
    }
  }

  at::Tensor eager_output(const Slot& slot) const {
    if (slot.kind == Kind::Output) return eager_.results().at(static_cast<size_t>(slot.index));
    expect(slot.kind == Kind::MutatedInput, "slots", slot.str());
    return eager_.inputs()[position_of(slot)].tensor;
  }

  void choose_tangents() {
    for (const Graph::Input& input : graph_.inputs()) {
      if (input.slot.kind != Kind::Tangent) continue;
      const TensorMeta& meta = input.value->meta;
      const auto output = static_cast<size_t>(input.slot.index);
      roots_.push_back(eager_output(graph_.outputs().at(output).slot));
      tangents_.push_back(random_tangent(at::empty_strided(meta.sizes, meta.strides, meta.dtype),
                                         first_tangent_seed + output + program_.seed));
    }
    if (!program_.no_grad) expect_all_tangents();
  }

  void expect_all_tangents() {
    std::set<const void*> mutated;
    for (const Graph::Input& input : graph_.inputs()) {
      if (input.slot.kind == Kind::Tangent) continue;
      const size_t position = position_of(input);
      const at::Tensor& tensor = eager_.inputs()[position].tensor;
      if (eager_.mutated(position) && tensor.requires_grad() && !is_as_before(position))
        mutated.insert(tensor.unsafeGetTensorImpl());
    }
    size_t expected = mutated.size();
    for (const at::Tensor& result : eager_.results()) expected += result.requires_grad() ? 1 : 0;
    for (const Graph::Output& output : graph_.outputs()) {
      if (output.slot.kind != Kind::MutatedInput) continue;
      const size_t position = position_of(output.slot);
      if (eager_.mutated(position) && !is_as_before(position)) continue;
      expected += output.requires_grad ? 1 : 0;
    }
    expect(expected == roots_.size(), "tangents",
           c10::str("eager has ", expected, " outputs with gradient, the graph ", roots_.size()));
  }

  /// Only the version of an input was raised: an alias of it changed its shape.
  bool is_as_before(size_t position) const {
    const at::Tensor &before = inputs_[position].tensor, &after = eager_.inputs()[position].tensor;
    if (!tensor_difference(before.detach(), after.detach()).empty()) return false;
    const MadeInput& input = eager_.inputs()[position];
    // Autograd makes the history of a view anew when its version was raised.
    const bool of_whole = input.through_view && after.is_view();
    const at::Tensor whole = of_whole ? at::Tensor(after._base()) : after;
    return torch::autograd::impl::gradient_edge(whole).function == input.edge.function;
  }

  void run_eager_backward() {
    if (program_.no_grad) return void(gradients_.resize(inputs_.size()));
    try {
      gradients_ = eager_.backward(roots_, tangents_);
    } catch (const std::exception& error) {
      throw Difference{"trace does not throw", "eager backward: " + first_line(error)};
    }
  }

  Tensors graph_arguments() const {
    Tensors arguments;
    size_t next_tangent = 0;
    for (const Graph::Input& input : graph_.inputs()) {
      arguments.push_back(input.slot.kind == Kind::Tangent ? tangents_.at(next_tangent++)
                                                           : inputs_[position_of(input)].tensor);
    }
    return arguments;
  }

  void run_graph() {
    const Snapshot before(inputs_);
    // Every other program runs as it reads.
    const bool from_text = program_.seed % 2 == 1;
    seed_generator();
    try {
      outputs_ = interpret(from_text ? Graph::parse(graph_.str()) : graph_, graph_arguments());
    } catch (const std::exception& error) {
      throw Difference{"graph throws", first_line(error)};
    }
    const std::string touched = before.difference(inputs_);
    expect(touched.empty(), "graph touches inputs", touched);
    expect(at::equal(random_state(), eager_.random_state()), "random state",
           "another number of random numbers was drawn");
    if (tamper_) tamper_(graph_, outputs_);
  }

  void compare_output(size_t index) {
    const Graph::Output& output = graph_.outputs()[index];
    const std::string where =
        "graph output " + std::to_string(index) + " (" + output.slot.str() + ")";
    if (output.slot.kind == Kind::GradOf) {
      return compare_gradient(position_of(output.slot), outputs_[index], where);
    }
    const at::Tensor expected = eager_output(output.slot);
    expect(expected.requires_grad() == output.requires_grad, "requires_grad",
           where + (output.requires_grad ? ": eager's does not" : ": eager's does"));
    if (output.slot.kind != Kind::Output) return;
    // What shares memory with a mutated input is made from that input when the graph has run.
    if (aliases_mutated_input(expected))
      return expect_same_values(expected, outputs_[index], "output", where);
    expect_same(expected.detach(), outputs_[index], "output", where);
  }

  bool aliases_mutated_input(const at::Tensor& tensor) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (eager_.mutated(i) && tensor.is_alias_of(eager_.inputs()[i].tensor)) return true;
    }
    return false;
  }

  void compare_gradient(size_t position, const at::Tensor& actual, const std::string& where) {
    ++num_gradients_;
    const at::Tensor& expected = gradients_[position];
    // What the layout was before the gradient flowed on into the whole tensor is not known.
    if (inputs_[position].through_view) {
      return expect_same_values(expected, actual, "gradient", where);
    }
    expect_same(expected, actual, "gradient", where);
  }

  void expect_all_gradients() {
    std::set<const void*> expected;
    for (const Graph::Input& input : graph_.inputs()) {
      if (input.slot.kind == Kind::Tangent || program_.no_grad) continue;
      const at::Tensor& tensor = inputs_[position_of(input)].tensor;
      if (tensor.requires_grad()) expected.insert(tensor.unsafeGetTensorImpl());
    }
    expect(num_gradients_ == expected.size(), "gradients",
           c10::str(expected.size(), " inputs require grad, the graph has ", num_gradients_,
                    " gradients"));
  }

  /// Every value in the graph is as its description says.
  void compare_metadata() {
    Graph all = graph_;
    const size_t known = all.outputs().size();
    std::vector<const Value*> values;
    for (Node& node : all.nodes()) {
      for (Value* value : node.results()) {
        if (value != nullptr) values.push_back(value);
      }
    }
    int32_t next = static_cast<int32_t>(known);
    for (const Value* value : values)
      all.add_output(const_cast<Value*>(value), {Kind::Output, next++});
    seed_generator();
    const Tensors outputs = interpret(all, graph_arguments());
    for (size_t i = 0; i < values.size(); ++i) {
      TensorMeta expected = meaningful(TensorMeta::of(outputs[known + i].detach()));
      TensorMeta actual = meaningful(values[i]->meta);
      actual.requires_grad = false;
      if (expected == actual) continue;
      throw Difference{"metadata", values[i]->producer()->op().name() + " gives " + expected.str() +
                                       ", the graph says " + actual.str()};
    }
  }

  void compare_transforms() {
    const std::string problem = transforms_problem(graph_, graph_arguments());
    expect(problem.empty(), "transforms", problem);
  }

  /// After what the graph says about mutation was done, the inputs are as after the eager run.
  void compare_inputs() {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Slot& slot = graph_.outputs()[i].slot;
      if (slot.kind == Kind::MutatedInput) outputs_[i] = outputs_[i].clone();
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Slot& slot = graph_.outputs()[i].slot;
      if (slot.kind == Kind::MutatedInput) inputs_[position_of(slot)].tensor.copy_(outputs_[i]);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      expect_same(eager_.inputs()[i].tensor.detach(), inputs_[i].tensor.detach(), "mutation",
                  "x" + std::to_string(i));
    }
  }

  const Program& program_;
  const Tamper& tamper_;
  EagerRun eager_;
  std::vector<MadeInput> inputs_;
  Graph graph_;
  Verdict verdict_;
  Tensors roots_, tangents_, gradients_, outputs_;
  size_t num_gradients_ = 0;
};

}  // namespace

Verdict check(const Program& program, const Tamper& tamper) {
  return Checker(program, tamper).run();
}

}  // namespace ahead::fuzz
