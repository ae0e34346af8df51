#include "derivative/sparse_gradients.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ahead/errors.h"
#include "ir/sizes/sized_constants.h"
#include "ops/facts/sparse_values.h"

namespace ahead::compiling {
namespace {

using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<int64_t>;

/// How a node makes a sparse tensor of two others.
struct Form {
  const c10::OperatorHandle* op;
  std::vector<c10::IValue> arguments;  ///< those that are constant, which sizes may be in
  size_t first;                        ///< where the first of the two stands, before the second

  static Form of(const Node& node) {
    Form form{&node.op().handle(), {}, node.args().size()};
    for (size_t i = 0; i < node.args().size(); ++i) {
      const bool is_part = node.args()[i].is_value();
      if (is_part) form.first = std::min(form.first, i);
      form.arguments.push_back(is_part ? c10::IValue() : node.args()[i].constant());
    }
    return form;
  }

  at::Tensor make(const at::Tensor& one, const at::Tensor& other, const Sizes& sizes) const {
    if (!one.defined() || !other.defined()) return {};
    torch::jit::Stack stack;
    for (const c10::IValue& argument : arguments) stack.push_back(with_sizes(argument, sizes));
    stack[first] = one;
    stack[first + 1] = other;
    op->callBoxed(stack);
    return stack[0].toTensor();
  }
};

bool may_be_added_to(const at::Tensor& sum) {
  return sum.layout() == at::kStrided && sum.is_non_overlapping_and_dense() &&
         sum.use_count() == 1 && sum.storage().use_count() == 1;
}

/// Adds gradients up as LibTorch's engine does: a sparse one to another, whichever came first.
at::Tensor add_up(at::Tensor first, at::Tensor second) {
  if (!first.defined() || !second.defined()) return first.defined() ? first : second;
  if (first.is_sparse()) std::swap(first, second);
  return may_be_added_to(first) ? first.add_(second) : at::add(first, second);
}

/// One operand of a step: what the dense part returned, or what an earlier step made.
struct Operand {
  bool is_step;
  size_t index;
};

/// Makes a sparse tensor of two operands, or adds them up.
struct Step {
  Operand first, second;
  std::optional<Form> form;
};

}  // namespace

/// How the gradients are made of what the dense part returns.
struct SparseGradients::Recipe {
  struct Gradient {
    std::vector<int32_t> outputs;  ///< of the dense part
    std::vector<Step> steps;       ///< none: it is the one output

    at::Tensor make(Tensors&& outputs, const Sizes& sizes) const;
  };

  std::vector<Gradient> gradients;
  bool takes_sizes = false;  ///< as the last argument

  Sizes sizes_in(const Tensors& args) const {
    if (!takes_sizes) return {};
    const auto* first = args.back().const_data_ptr<int64_t>();
    return {first, first + args.back().numel()};
  }
};

at::Tensor SparseGradients::Recipe::Gradient::make(Tensors&& outputs, const Sizes& sizes) const {
  if (steps.empty()) return std::move(outputs[0]);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Tensors made(steps.size());
  const auto take = [&](const Operand& operand) {
    return std::move(operand.is_step ? made[operand.index] : outputs[operand.index]);
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    at::Tensor first = take(steps[i].first), second = take(steps[i].second);
    made[i] = steps[i].form ? steps[i].form->make(first, second, sizes)
                            : add_up(std::move(first), std::move(second));
  }
  return std::move(made.back());
}

/// A run of the dense part that hands over whole gradients.
class SparseGradients::Run final : public aot::GraphRun {
 public:
  Run(std::shared_ptr<const Recipe> recipe, Sizes sizes, std::unique_ptr<GraphRun> dense)
      : recipe_(std::move(recipe)), sizes_(std::move(sizes)), dense_(std::move(dense)) {}

  Tensors until(c10::ArrayRef<int32_t> outputs) override {
    std::vector<int32_t> needed;
    for (const int32_t output : outputs) {
      const std::vector<int32_t>& parts = gradient(output).outputs;
      needed.insert(needed.end(), parts.begin(), parts.end());
    }
    Tensors made = dense_->until(needed), gradients;
    auto next = std::make_move_iterator(made.begin());
    for (const int32_t output : outputs) {
      const auto end = next + static_cast<ptrdiff_t>(gradient(output).outputs.size());
      gradients.push_back(gradient(output).make(Tensors(next, end), sizes_));
      next = end;
    }
    return gradients;
  }
  bool will_read(size_t input) const override { return dense_->will_read(input); }
  void finish() override { dense_->finish(); }

 private:
  const Recipe::Gradient& gradient(int32_t output) const {
    return recipe_->gradients[static_cast<size_t>(output)];
  }

  const std::shared_ptr<const Recipe> recipe_;
  const Sizes sizes_;
  const std::unique_ptr<GraphRun> dense_;
};

namespace {

/// Finds out how gradients are made, and lets the graph return what they are made of.
class GradientCutter {
 public:
  GradientCutter(Graph& graph, std::vector<int32_t>& outputs, std::vector<Step>& steps)
      : graph_(graph), outputs_(outputs), steps_(steps) {}

  /// `sparse`: the values that are made behind the dense part.
  Operand take(Value* value, const ops::SparseValues& sparse) {
    if (!sparse.contains(value)) return {false, returned(value)};
    const Node& node = *value->producer();
    std::vector<Operand> operands;
    node.for_each_operand([&](Value* operand) { operands.push_back(take(operand, sparse)); });
    const bool is_made = ops::makes_sparse(node.op());
    steps_.push_back({operands.at(0), operands.at(1),
                      is_made ? std::optional(Form::of(node)) : std::nullopt});
    return {true, steps_.size() - 1};
  }

 private:
  size_t returned(Value* value) {
    int32_t slot = 0;
    for (const Graph::Output& output : graph_.outputs())
      slot = std::max(slot, output.slot.index + 1);
    outputs_.push_back(static_cast<int32_t>(graph_.outputs().size()));
    graph_.add_output(value, {Slot::Kind::GradOf, slot});
    return outputs_.size() - 1;
  }

  Graph& graph_;
  std::vector<int32_t>& outputs_;
  std::vector<Step>& steps_;
};

}  // namespace

bool SparseGradients::are_in(const Graph& backward) {
  return ops::SparseValues(backward).is_any();
}

void SparseGradients::check_none_in(const Graph& forward) {
  if (!are_in(forward)) return;
  throw Unsupported("compile",
                    "a sparse gradient depends on no gradient that comes in, so that the forward "
                    "computes it; what that saves is dense.");
}

SparseGradients::SparseGradients(const Graph& backward) : dense_(backward) {
  const ops::SparseValues sparse(dense_);
  auto recipe = std::make_shared<Recipe>();
  recipe->takes_sizes = dense_.find_input({Slot::Kind::Sizes, 0}) >= 0;
  const size_t num_gradients = dense_.outputs().size();
  for (size_t i = 0; i < num_gradients; ++i) {
    Recipe::Gradient& gradient = recipe->gradients.emplace_back();
    Value* value = dense_.outputs()[i].value;
    if (value == nullptr || !sparse.contains(value)) {
      gradient.outputs.push_back(static_cast<int32_t>(i));
      continue;
    }
    GradientCutter(dense_, gradient.outputs, gradient.steps).take(value, sparse);
    dense_.set_output(i, nullptr);
  }
  for (Node* node = dense_.last(); node != nullptr;) {
    Node* const previous = node->prev();
    if (node->result() != nullptr && sparse.contains(node->result())) dense_.erase(node);
    node = previous;
  }
  recipe_ = std::move(recipe);
}

aot::Executable SparseGradients::behind(aot::Executable dense) const {
  const auto run = [recipe = recipe_, dense](Tensors&& args) {
    const Sizes sizes = recipe->sizes_in(args);
    Tensors outputs = dense(std::move(args)), gradients;
    for (const Recipe::Gradient& gradient : recipe->gradients) {
      Tensors parts;
      for (const int32_t output : gradient.outputs)
        parts.push_back(std::move(outputs[static_cast<size_t>(output)]));
      gradients.push_back(gradient.make(std::move(parts), sizes));
    }
    return gradients;
  };
  if (!dense.is_resumable()) return run;
  return {run, [recipe = recipe_, dense](Tensors&& args) -> std::unique_ptr<aot::GraphRun> {
            Sizes sizes = recipe->sizes_in(args);
            return std::make_unique<Run>(recipe, std::move(sizes), dense.begin(std::move(args)));
          }};
}

}  // namespace ahead::compiling
