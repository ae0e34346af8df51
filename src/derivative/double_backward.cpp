#include "derivative/double_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <mutex>

#include "ahead/errors.h"
#include "ahead/tree.h"
#include "derivative/forward_cone.h"
#include "interpreter/plan.h"
#include "trace/independent_inputs.h"

namespace ahead::compiling {
namespace {

using Need = runtime::DifferentiableBackward::Need;
using Tensors = std::vector<at::Tensor>;

[[noreturn]] void throw_impossible(const std::string& why) {
  throw Unsupported(
      "double backward",
      why +
          ", so that second derivatives cannot be found by running the function again. "
          "Take the gradient inside the compiled function, or compile with "
          "Options::double_backward = false.");
}

/// Why the operators of the forward do not tell the gradient; empty: they do.
std::string why_not(const ForwardCone& cone, const tracing::JointTrace& trace,
                    const runtime::Epilogue& epilogue) {
  if (trace.opaque_gradient)
    return trace.opaque_gradient->name +
           ": a custom autograd function or a hook has a gradient of its own";
  if (trace.hidden_write)
    return trace.hidden_write->name +
           ": it writes to a differentiable tensor without autograd's knowledge (under no_grad, "
           "through detach(), or because it has no derivative), or views under no_grad what was "
           "written";
  return cone.why_not(epilogue);
}

/// What the backward saves anyway is not saved again.
void reuse_saved(Need& need, const std::vector<SavedValue>& saved) {
  for (size_t i = 0; i < saved.size() && need.kind == Need::Kind::Input; ++i) {
    if (saved[i].input == need.index) need = {Need::Kind::Saved, static_cast<int32_t>(i)};
  }
}

/// Where a graph input stands among what is needed.
int32_t argument_of(const std::vector<Need>& needs, int32_t input) {
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].kind == Need::Kind::Input && needs[i].index == input)
      return static_cast<int32_t>(i);
  }
  return -1;
}

class DoubleBackward final : public runtime::DifferentiableBackward {
 public:
  DoubleBackward(const BackwardRecipe& recipe, const Options& options,
                 const detail::Compilers& compilers)
      : needs_(recipe.needs),
        why_not_(recipe.why_not),
        forward_(recipe.forward, Interpreter::Plan::Views::OneByOne),
        options_(options),
        compilers_(compilers),
        grad_arguments_(recipe.grad_arguments) {
    options_.confirm = 0;
    options_.fullgraph = false;
    options_.custom_op_aliasing = SchemaCheck::Off;  // the compilers do it already
    options_.watch.clear();
    compilers_.num_params_buffers = 0;
  }

  const std::vector<Need>& needs() const override { return needs_; }

  Tensors run(const Request& request) override {
    if (!why_not_.empty()) throw_impossible(why_not_);
    std::vector<bool> key(request.wanted.begin(), request.wanted.end());
    Tensors arguments;
    for (size_t i = 0; i < needs_.size(); ++i) arguments.push_back(request.needed(i));
    for (const at::Tensor& tangent : request.tangents) {
      key.push_back(tangent.defined());
      if (tangent.defined()) arguments.push_back(tangent);
    }
    return run(find(key, request.tangents.size()), arguments);
  }

  std::vector<Program> programs() override {
    std::vector<Program> all;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, known] : cases_) {
      for (Program& program : known->core.programs()) all.push_back(std::move(program));
    }
    return all;
  }

 private:
  /// One combination of tangents that come in and gradients that are wanted.
  struct Case {
    detail::CompiledCore core;
    aot::FlatFunction gradient;
  };

  static Tensors run(Case& known, const Tensors& arguments) {
    const FlatTree inputs = flatten(arguments);
    // What was saved was computed from the inputs; autograd goes on from there by itself.
    const tracing::IndependentInputs independent;
    detail::Served served = known.core.serve_traced(
        inputs, known.gradient, [] { return std::make_shared<const bool>(true); });
    return served.entry != nullptr ? std::move(served.results) : known.gradient(arguments);
  }

  Case& find(const std::vector<bool>& key, size_t num_tangents) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Case>& known = cases_[key];
    if (known == nullptr) {
      known.reset(new Case{detail::CompiledCore(options_, compilers_),
                           [this, key, num_tangents](const Tensors& arguments) {
                             return gradient(arguments, key, num_tangents);
                           }});
    }
    return *known;
  }

  static void check_differentiable(const at::Tensor& output) {
    if (!output.requires_grad())
      throw_impossible(TensorMeta::of(output).str() +
                       ": this result has no gradient when it is "
                       "computed again");
  }

  Tensors gradient(const Tensors& arguments, const std::vector<bool>& key,
                   size_t num_tangents) const {
    const auto num_needed = static_cast<int64_t>(needs_.size());
    const bool create_graph = at::GradMode::is_enabled();
    at::AutoGradMode with_history(true);
    const Tensors outputs =
        forward_.replay(Tensors(arguments.begin(), arguments.begin() + num_needed));
    const size_t num_gradients = grad_arguments_.size();
    Tensors roots, tangents(arguments.begin() + num_needed, arguments.end()), targets;
    for (size_t i = 0; i < num_tangents; ++i) {
      if (!key[num_gradients + i]) continue;
      check_differentiable(outputs[i]);
      roots.push_back(outputs[i]);
    }
    for (size_t i = 0; i < num_gradients; ++i) {
      if (key[i] && grad_arguments_[i] >= 0)
        targets.push_back(arguments[static_cast<size_t>(grad_arguments_[i])]);
    }
    Tensors found;
    if (!roots.empty() && !targets.empty()) {
      found = torch::autograd::grad(roots, targets, tangents, /*retain_graph=*/true, create_graph,
                                    /*allow_unused=*/true);
    }
    Tensors gradients(num_gradients);
    size_t next = 0;
    for (size_t i = 0; i < num_gradients && !found.empty(); ++i) {
      if (key[i] && grad_arguments_[i] >= 0) gradients[i] = found[next++];
    }
    return gradients;
  }

  const std::vector<Need> needs_;
  const std::string why_not_;
  const Interpreter::Plan forward_;
  Options options_;
  detail::Compilers compilers_;
  const std::vector<int32_t> grad_arguments_;  ///< see BackwardRecipe
  std::mutex mutex_;
  std::map<std::vector<bool>, std::unique_ptr<Case>> cases_;
};

}  // namespace

BackwardRecipe recipe_of(const JointGraph& joint, const PartitionedGraphs& graphs,
                         const tracing::JointTrace& trace, const runtime::Epilogue& epilogue,
                         const Options& options) {
  ForwardCone cone(joint, graphs);
  BackwardRecipe recipe;
  recipe.why_not = why_not(cone, trace, epilogue);
  if (!recipe.why_not.empty() && !options.fullgraph) throw_impossible(recipe.why_not);
  for (const Graph::Output& output : graphs.backward.outputs())
    recipe.grad_arguments.push_back(argument_of(cone.needs, output.slot.index));
  for (Need& need : cone.needs) reuse_saved(need, graphs.saved);
  recipe.needs = std::move(cone.needs);
  recipe.forward = std::move(cone.graph);
  return recipe;
}

std::shared_ptr<runtime::DifferentiableBackward> make_double_backward(
    const BackwardRecipe& recipe, const Options& options, const detail::Compilers& compilers) {
  return std::make_shared<DoubleBackward>(recipe, options, compilers);
}

}  // namespace ahead::compiling
