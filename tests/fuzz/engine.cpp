#include "fuzz/engine.h"

#include <optional>
#include <unordered_set>

#include "ahead/compiled_autograd.h"
#include "ahead/traceable_hook.h"
#include "base/front_engine.h"
#include "checkpoint/saved_tensor_hooks.h"
#include "fuzz/eager.h"
#include "support/autograd_hooks.h"
#include "support/eager.h"
#include "support/journal.h"

namespace ahead::fuzz {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
using Calls = std::shared_ptr<std::vector<int64_t>>;

/// A hook that notes its number and changes the gradients.
auto noting(const Calls& calls, int64_t number) {
  return [calls, number](const variable_list& gradients, auto&&...) {
    calls->push_back(number);
    return test::scaled(gradients, 1.5);
  };
}

/// Gives some of the nodes that lead to these tensors hooks which note that they were called.
void add_hooks(const Tensors& roots, uint64_t seed, const Calls& calls) {
  std::vector<Node*> nodes;
  std::unordered_set<Node*> seen;
  const auto add = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) nodes.push_back(node);
  };
  for (const at::Tensor& root : roots) {
    add(torch::autograd::impl::gradient_edge(root).function.get());
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto number = static_cast<int64_t>(i) + 1;
    const uint64_t dice = (seed + i * 7919) * 0x9e3779b97f4a7c15 >> 60;
    if (dice == 0) nodes[i]->add_pre_hook(std::make_unique<test::PreHook>(noting(calls, number)));
    if (dice == 1)
      nodes[i]->add_post_hook(std::make_unique<test::PostHook>(noting(calls, -number)));
    for (const torch::autograd::Edge& edge : nodes[i]->next_edges()) add(edge.function.get());
  }
}

/// Gives a leaf a hook that does the same, a traceable one, which notes nothing, or one that is
/// called when the gradient was added.
void add_leaf_hook(const at::Tensor& leaf, uint64_t kind, int64_t number, const Calls& calls) {
  if (kind % 3 == 1) {
    register_traceable_hook(leaf, [](const at::Tensor& gradient) { return gradient * 1.25; });
  } else if (kind % 3 == 2) {
    const auto change = [calls, number](const at::Tensor& with_gradient) {
      const at::NoGradGuard no_grad;
      calls->push_back(-number);
      with_gradient.mutable_grad() = with_gradient.grad().detach() * 1.25;
    };
    torch::autograd::impl::set_post_acc_grad_hooks(leaf,
                                                   std::make_unique<test::AccumulatedHook>(change));
  } else {
    leaf.register_hook([calls, number](const at::Tensor& gradient) {
      calls->push_back(number);
      return gradient * 1.5;
    });
  }
}

void add_leaf_hooks(const EagerRun& run, uint64_t seed, const Calls& calls) {
  int64_t number = 1000;
  for (const MadeInput& input : run.inputs()) {
    ++number;
    if (!input.leaf.defined() || !input.leaf.requires_grad()) continue;
    const uint64_t dice = (seed + static_cast<uint64_t>(number) * 7919) * 0x9e3779b97f4a7c15 >> 59;
    if (dice < 16) add_leaf_hook(input.leaf, dice, number, calls);
  }
}

/// Keeps a saved tensor, notes its number when it is unpacked, and gives back some of them in other
/// memory or laid out otherwise.
class NotingSaved final : public torch::autograd::SavedVariableHooks {
 public:
  NotingSaved(Calls calls, int64_t number) : calls_(std::move(calls)), number_(number) {}
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = tensor.detach(); }
  at::Tensor call_unpack_hook() override {
    calls_->push_back(number_);
    if (number_ % 3 == 0) return packed_.clone();
    return number_ % 3 == 1 && packed_.dim() == 2 ? packed_.t().contiguous().t() : packed_;
  }

 private:
  const Calls calls_;
  const int64_t number_;
  at::Tensor packed_;
};

/// Gives what autograd saves such hooks, or every other tensor of it.
class SavedHooks final : public SavedTensorPacker {
 public:
  SavedHooks(Calls calls, uint64_t seed) : calls_(std::move(calls)), skips_(seed % 2 == 0) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override {
    ++number_;
    if (skips_ && number_ % 2 == 0) return nullptr;
    return std::make_unique<NotingSaved>(calls_, 100000 + number_);
  }

 private:
  const Calls calls_;
  const bool skips_;
  int64_t number_ = 0;
};

/// Lets some results keep their gradients.
void retain_gradients(const Tensors& roots, uint64_t seed) {
  for (size_t i = 0; i < roots.size(); ++i) {
    if ((seed + i) % 3 == 0 && !roots[i].is_leaf()) roots[i].retain_grad();
  }
}

/// All roots or, for some seeds, some of them.
Tensors chosen(const Tensors& roots, uint64_t seed) {
  if (roots.size() < 2 || seed % 5 < 3) return roots;
  Tensors some;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (((seed + i * 104729) * 0x9e3779b97f4a7c15 >> 63) != 0) some.push_back(roots[i]);
  }
  return some.empty() ? Tensors{roots.back()} : some;
}

/// Everything that a forward and a backward leave behind.
struct Outcome {
  std::string error;
  Tensors tensors;
  std::vector<int64_t> calls;
  std::vector<std::string> effects;
};

/// Whether a leaf takes a gradient together with memory that something else uses too is not
/// compared: captured backwards copy it then.
at::Tensor without_offset(const at::Tensor& gradient) {
  if (!gradient.defined() || !gradient.has_storage() || gradient.storage_offset() == 0)
    return gradient;
  at::NoGradGuard no_grad;
  return at::empty_strided(gradient.sizes(), gradient.strides(), gradient.options())
      .copy_(gradient);
}

/// What comes before or after the backward that leaves gradients on leaves.
enum class Around : uint8_t {
  Nothing,
  AnotherBackward,  ///< of the same graph
  KeptGradients,    ///< leaves have some already, not all of them lying as their leaf
  SecondOrder,      ///< a backward of the gradients themselves
};

constexpr Around arounds[] = {Around::AnotherBackward, Around::KeptGradients, Around::Nothing,
                              Around::SecondOrder};

void keep_gradients(const EagerRun& run) {
  bool is_transposed = false;
  for (const MadeInput& input : run.inputs()) {
    if (!input.leaf.defined() || !input.leaf.requires_grad()) continue;
    at::Tensor kept = at::ones_like(input.leaf.detach());
    if (is_transposed && kept.dim() == 2) kept = kept.t().contiguous().t();
    is_transposed = !is_transposed;
    input.leaf.mutable_grad() = kept;
  }
}

/// The gradients that leaves have, which are taken away from them.
Tensors take_gradients(const EagerRun& run) {
  Tensors taken;
  for (const MadeInput& input : run.inputs()) {
    if (!input.leaf.defined()) continue;
    taken.push_back(input.leaf.grad());
    input.leaf.mutable_grad().reset();
  }
  return taken;
}

/// Differentiates the sum of the squares of these gradients.
void differentiate_again(const Tensors& gradients) {
  at::Tensor sum;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined() || !gradient.requires_grad() || gradient.is_complex()) continue;
    const at::Tensor square = gradient.pow(2).sum().to(at::kDouble);
    sum = sum.defined() ? sum + square : square;
  }
  if (sum.defined()) sum.backward();
}

void accumulate(const EagerRun& run, const Tensors& roots, const Tensors& tangents, Around around,
                Tensors& left) {
  const bool is_first = around == Around::SecondOrder;
  if (around == Around::KeptGradients) keep_gradients(run);
  torch::autograd::backward(roots, tangents,
                            /*retain_graph=*/is_first || around == Around::AnotherBackward,
                            /*create_graph=*/is_first);
  if (around == Around::AnotherBackward) torch::autograd::backward(roots, tangents);
  Tensors gradients = take_gradients(run);
  for (const at::Tensor& gradient : gradients)
    left.push_back(without_offset(gradient.defined() ? gradient.detach() : gradient));
  if (!is_first) return;
  differentiate_again(gradients);
  for (const at::Tensor& gradient : take_gradients(run)) left.push_back(without_offset(gradient));
}

/// The first line of a message; what follows tells where in the process it was thrown.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Runs the forward: for some seeds as a checkpointed region, for some with hooks of saved tensors.
EagerRun run_forward(const Program& program, const Calls& calls) {
  const uint64_t kind = program.seed % 13;
  if (kind < 3) return EagerRun(program, /*is_checkpointed=*/true);
  if (kind >= 7) return EagerRun(program);
  SavedHooks hooks(calls, program.seed);
  const runtime::PackerScope scope(hooks);
  return EagerRun(program);
}

void run_backward(EagerRun& run, uint64_t seed, bool compiled, const Calls& calls,
                  Outcome& outcome) {
  if (run.roots().empty()) return;
  const Tensors roots = chosen(run.roots(), seed);
  Tensors tangents;
  for (const at::Tensor& root : roots) {
    tangents.push_back(random_tangent(at::empty_like(root.detach()), first_tangent_seed + seed));
  }
  if (seed % 3 != 0) add_hooks(roots, seed, calls);
  if (seed % 7 < 4) add_leaf_hooks(run, seed, calls);
  if (seed % 11 < 4) retain_gradients(roots, seed);
  std::optional<compiled_autograd::Enable> on;
  if (compiled) on.emplace();
  if (seed % 2 == 0) {
    outcome.tensors = run.backward(roots, tangents);
  } else {
    accumulate(run, roots, tangents, arounds[seed / 2 % 4], outcome.tensors);
  }
  for (const at::Tensor& root : roots) {
    if (!root.is_leaf() && root.retains_grad()) outcome.tensors.push_back(root.grad());
  }
  outcome.calls = *calls;
}

Outcome outcome_of(const Program& program, bool compiled) {
  const auto calls = std::make_shared<std::vector<int64_t>>();
  journal::take();
  EagerRun run = run_forward(program, calls);
  if (run.threw()) return {first_line(run.error()), {}, {}, {}};
  Outcome outcome;
  try {
    run_backward(run, program.seed, compiled, calls, outcome);
  } catch (const std::exception& error) {
    outcome.error = first_line(error.what());
  }
  outcome.effects = journal::take();
  for (const MadeInput& input : run.inputs()) outcome.tensors.push_back(input.tensor.detach());
  return outcome;
}

std::string lines_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string difference(const Outcome& expected, const Outcome& got) {
  if (expected.error != got.error) {
    return "throws '" + got.error + "', but eager '" + expected.error + "'";
  }
  if (expected.calls != got.calls)
    return c10::str("hooks ", expected.calls, " are called as ", got.calls);
  if (expected.effects != got.effects)
    return c10::str("effects:\n", lines_of(expected.effects), "are\n", lines_of(got.effects));
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    const std::string text = tensor_difference(expected.tensors[i], got.tensors[i]);
    if (!text.empty()) return "gradient " + std::to_string(i) + ": " + text;
  }
  return "";
}

std::string graphs() {
  std::string text;
  for (const auto& graph : compiled_autograd::graphs()) text += graph->str() + "\n";
  return text;
}

}  // namespace

Verdict check_engine(const Program& program) {
  if (program.no_grad) return {};
  const Outcome expected = outcome_of(program, /*compiled=*/false);
  compiled_autograd::reset();
  for (int call = 0; call < 2; ++call) {
    const Outcome got = outcome_of(program, /*compiled=*/true);
    const std::string text = difference(expected, got);
    if (text.empty()) continue;
    return {Verdict::Kind::Differs, "compiled autograd",
            "call " + std::to_string(call) + ": " + text, graphs()};
  }
  if (!expected.error.empty()) return {Verdict::Kind::BothThrow, expected.error, "", ""};
  return {};
}

}  // namespace ahead::fuzz
