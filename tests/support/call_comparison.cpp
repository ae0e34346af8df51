#include "support/call_comparison.h"

#include <algorithm>
#include <set>

namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;

/// What an action throws that is compared with: it never goes through compiled autograd.
std::string error_of_eager(const std::function<void()>& action) {
  const compiled_autograd::Disable eager_engine;
  return error_of(action);
}

/// Of two errors of which one is empty.
std::string who_throws(const std::string& eager, const std::string& compiled) {
  return (eager.empty() ? " compiled: " : " in eager: ") + eager + compiled;
}

/// One call and all that follows from it.
struct Run {
  CallInputs inputs;
  Tensors outputs;
  std::string error;
  bool is_unsupported = false;

  Run(const CallSide& side, uint64_t seed) {
    torch::manual_seed(seed);
    inputs = side.make_inputs();
    torch::manual_seed(seed);
    error = error_of([&] {
      try {
        outputs = side.function(inputs.passed);
      } catch (const Unsupported&) {
        is_unsupported = true;
        throw;
      }
    });
  }

  Tensors everything() const {
    Tensors all = inputs.passed;
    all.insert(all.end(), inputs.captured.begin(), inputs.captured.end());
    all.insert(all.end(), outputs.begin(), outputs.end());
    return all;
  }
};

/// Any numbers, the same every time, in rows.
at::Tensor tangent_for(const at::Tensor& root) {
  return random_tangent(at::empty(root.sizes(), root.options()), /*seed=*/31);
}

double tolerance(at::ScalarType type) {
  if (type == at::kHalf || type == at::kBFloat16) return 0.1;
  return type == at::kDouble || type == at::kComplexDouble ? 1e-8 : 1e-3;
}

/// `through`: a type that the numbers went through on their way, which may be a coarser one.
std::string closeness_difference(const at::Tensor& eager, const at::Tensor& compiled,
                                 at::ScalarType through = at::kDouble) {
  if (eager.defined() != compiled.defined()) return eager.defined() ? "is undefined" : "is defined";
  if (!eager.defined()) return "";
  if (eager.sizes() != compiled.sizes() || eager.dtype() != compiled.dtype())
    return tensor_difference(eager, compiled);
  if (eager.numel() == 0) return "";
  const double relative = std::max(tolerance(eager.scalar_type()), tolerance(through));
  const at::Tensor size = eager.detach().abs().nan_to_num(0, 0, 0).max();
  const double absolute = relative * (1 + size.to(at::kDouble).item<double>());
  const bool close = at::allclose(eager, compiled, relative, absolute, /*equal_nan=*/true);
  return close ? "" : tensor_difference(eager, compiled);
}

const void* base_of(const at::Tensor& tensor) {
  const bool is_view = !tensor.is_inference() && tensor.is_view();
  return is_view ? tensor._base().unsafeGetTensorImpl() : tensor.unsafeGetTensorImpl();
}

class Comparison {
 public:
  Comparison(const Run& eager, const Run& compiled, const CallPoints& points)
      : eager_(eager), compiled_(compiled), points_(points) {}

  std::vector<Difference> run() {
    if (eager_.outputs.size() != compiled_.outputs.size()) {
      expect(false, "number of results", "");
      return std::move(differences_);
    }
    compare_everything("");
    compare_relations();
    find_roots();
    if (points_.backward) compare_backward();
    if (points_.double_backward) compare_double_backward();
    if (points_.write_to_outputs) compare_writes();
    return std::move(differences_);
  }

 private:
  void expect(bool holds, const std::string& what, const std::string& detail) {
    if (!holds) differences_.push_back({what, detail});
  }

  std::string name_of(size_t index) const {
    const size_t passed = eager_.inputs.passed.size(), captured = eager_.inputs.captured.size();
    if (index < passed) return "input " + std::to_string(index);
    if (index < passed + captured) return "captured " + std::to_string(index - passed);
    return "output " + std::to_string(index - passed - captured);
  }

  void compare_everything(const std::string& when) {
    const Tensors eager = eager_.everything(), compiled = compiled_.everything();
    for (size_t i = 0; i < eager.size(); ++i)
      compare_tensor(eager[i], compiled[i], name_of(i) + when);
  }

  void compare_tensor(const at::Tensor& eager, const at::Tensor& compiled,
                      const std::string& where) {
    const std::string difference = tensor_difference(eager, compiled);
    expect(difference.empty(), "value", where + ": " + difference);
    if (!eager.defined() || !compiled.defined()) return;
    const bool versions = points_.new_versions || is_known_before(eager);
    for (const auto& [what, detail] :
         flag_differences(TensorFlags(eager), TensorFlags(compiled), versions))
      expect(false, what, where + ": " + detail);
  }

  bool is_known_before(const at::Tensor& tensor) const {
    const auto shares = [&](const at::Tensor& input) { return input.is_alias_of(tensor); };
    const CallInputs& inputs = eager_.inputs;
    return std::any_of(inputs.passed.begin(), inputs.passed.end(), shares) ||
           std::any_of(inputs.captured.begin(), inputs.captured.end(), shares);
  }

  void expect_equal(int64_t eager, int64_t compiled, const std::string& what,
                    const std::string& where) {
    expect(eager == compiled, what,
           where + ": " + std::to_string(eager) + " in eager, " + std::to_string(compiled) +
               " compiled");
  }

  /// Who is who: the same tensor, the same memory, views of the same base.
  void compare_relations() {
    const Tensors eager = eager_.everything(), compiled = compiled_.everything();
    for (size_t i = 0; i < eager.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (!eager[i].defined() || !eager[k].defined()) continue;
        if (!compiled[i].defined() || !compiled[k].defined()) continue;
        const std::string where = name_of(k) + " and " + name_of(i);
        expect_equal(eager[i].is_same(eager[k]), compiled[i].is_same(compiled[k]), "same tensor",
                     where);
        expect_equal(eager[i].is_alias_of(eager[k]), compiled[i].is_alias_of(compiled[k]),
                     "shared memory", where);
        expect_equal(base_of(eager[i]) == base_of(eager[k]),
                     base_of(compiled[i]) == base_of(compiled[k]), "shared base", where);
      }
    }
  }

  /// Each tensor that has a gradient: the inputs too, since those that were written to have a new
  /// history.
  void find_roots() {
    const Tensors eager = eager_.everything(), compiled = compiled_.everything();
    std::set<const void*> seen;
    for (size_t i = 0; i < eager.size(); ++i) {
      if (!eager[i].defined() || !eager[i].requires_grad()) continue;
      if (!compiled[i].defined() || !compiled[i].requires_grad()) continue;
      if (seen.insert(eager[i].unsafeGetTensorImpl()).second) roots_.push_back(i);
    }
  }

  /// Differentiates each root on its own, twice, so that gradients are added up.
  void compare_backward() {
    for (size_t root : roots_) {
      compare_backward(root, " after backward of the sum of ", [](const at::Tensor& tensor) {
        at::AutoGradMode mode(true);
        (tensor.is_complex() ? at::view_as_real(tensor) : tensor)
            .sum()
            .backward({}, /*retain_graph=*/true);
      });
      compare_backward(root, " after backward of ", [](const at::Tensor& tensor) {
        tensor.backward(tangent_for(tensor), /*retain_graph=*/true);
      });
    }
  }

  void compare_backward(size_t root, const std::string& when,
                        const std::function<void(const at::Tensor&)>& backward) {
    const at::Tensor eager = eager_.everything()[root], compiled = compiled_.everything()[root];
    const std::string expected = error_of_eager([&] { backward(eager); });
    const std::string actual = error_of([&] { backward(compiled); });
    if (only_eager_complains(expected, actual)) return forget_gradients();
    expect(expected.empty() == actual.empty(), "backward throws",
           name_of(root) + who_throws(expected, actual));
    for (size_t i = 0; i < eager_.inputs.leaves.size(); ++i) {
      compare_gradient(eager_.inputs.leaves[i].grad(), compiled_.inputs.leaves[i].grad(),
                       "leaf " + std::to_string(i) + when + name_of(root));
    }
  }

  /// What was written to may be another tensor than the one that was saved. Of a saved view that
  /// was made without grad mode LibTorch says it in other words, since it looks for its history
  /// first.
  static bool only_eager_complains(const std::string& eager, const std::string& compiled) {
    if (!compiled.empty()) return false;
    return eager.find("modified by an inplace operation") != std::string::npos ||
           eager.find("A view was created in no_grad mode and its base") != std::string::npos;
  }

  void forget_gradients() {
    for (const Run* run : {&eager_, &compiled_}) {
      for (const at::Tensor& leaf : run->inputs.leaves) leaf.mutable_grad().reset();
    }
  }

  void compare_gradient(const at::Tensor& eager, const at::Tensor& compiled,
                        const std::string& where) {
    const std::string difference = points_.exact_gradients ? tensor_difference(eager, compiled)
                                                           : closeness_difference(eager, compiled);
    expect(difference.empty(), "gradient", where + ": " + difference);
  }

  /// The gradients of a root with respect to all leaves; undefined where there is none.
  static Tensors gradients(const Run& run, size_t root, bool create_graph) {
    const at::Tensor tensor = run.everything()[root];
    return torch::autograd::grad({tensor}, run.inputs.leaves, {tangent_for(tensor)},
                                 /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
  }

  /// The gradients of the sum of the squares of a root's gradients.
  static Tensors second_gradients(const Run& run, size_t root) {
    at::AutoGradMode mode(true);
    at::Tensor loss;
    for (const at::Tensor& gradient : gradients(run, root, /*create_graph=*/true)) {
      if (!gradient.defined() || !gradient.requires_grad()) continue;
      const at::Tensor part = gradient.abs().square().sum().to(at::kDouble);
      loss = loss.defined() ? loss + part : part;
    }
    if (!loss.defined()) return {};
    return torch::autograd::grad({loss}, run.inputs.leaves, {}, /*retain_graph=*/true,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  }

  void compare_double_backward() {
    if (eager_.inputs.leaves.empty()) return;
    for (size_t root : roots_) {
      Tensors expected, actual;
      bool is_unsupported = false;
      const std::string error = error_of_eager([&] { expected = second_gradients(eager_, root); });
      const std::string compiled_error = error_of([&] {
        try {
          actual = second_gradients(compiled_, root);
        } catch (const Unsupported&) {
          is_unsupported = points_.double_backward_may_be_refused;
          if (!is_unsupported) throw;
        }
      });
      if (is_unsupported || (!error.empty() && !compiled_error.empty())) continue;
      if (only_eager_complains(error, compiled_error)) continue;
      expect(error.empty() == compiled_error.empty(), "double backward throws",
             name_of(root) + who_throws(error, compiled_error));
      expected.resize(eager_.inputs.leaves.size());
      actual.resize(eager_.inputs.leaves.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::string difference = second_gradient_difference(
            expected[i], actual[i], eager_.everything()[root].scalar_type());
        expect(difference.empty(), "second gradient",
               "leaf " + std::to_string(i) + " by " + name_of(root) + ": " + difference);
      }
    }
  }

  /// No second gradient and one of zeros are the same.
  static std::string second_gradient_difference(at::Tensor eager, at::Tensor compiled,
                                                at::ScalarType root) {
    if (eager.defined() && !compiled.defined()) compiled = at::zeros_like(eager);
    if (compiled.defined() && !eager.defined()) eager = at::zeros_like(compiled);
    return closeness_difference(eager, compiled, root);
  }

  void compare_writes() {
    for (size_t i = 0; i < eager_.outputs.size(); ++i) {
      if (!eager_.outputs[i].defined() || !compiled_.outputs[i].defined()) continue;
      const auto write = [i](const Run& run) { run.outputs[i].mul_(2); };
      const std::string expected = error_of([&] { write(eager_); });
      const std::string actual = error_of([&] { write(compiled_); });
      const std::string where = "writing to output " + std::to_string(i);
      expect(expected.empty() == actual.empty(), "write throws",
             where + who_throws(expected, actual));
      compare_everything(" after " + where);
    }
    if (points_.backward && !eager_.inputs.leaves.empty()) compare_backward_after_writes();
  }

  /// Gradients that are not accumulated are laid out in any way, at any place of a storage.
  static at::Tensor packed(const at::Tensor& gradient) {
    return gradient.defined() ? gradient.clone(at::MemoryFormat::Contiguous) : gradient;
  }

  /// What was saved for the backward may be another tensor than in eager, so that either side may
  /// complain about the writes. No side may ignore them.
  void compare_backward_after_writes() {
    for (size_t root : roots_) {
      Tensors expected, actual;
      const std::string error =
          error_of_eager([&] { expected = gradients(eager_, root, /*create_graph=*/false); });
      const std::string compiled_error =
          error_of([&] { actual = gradients(compiled_, root, /*create_graph=*/false); });
      if (!error.empty() || !compiled_error.empty()) continue;
      for (size_t i = 0; i < expected.size(); ++i) {
        compare_gradient(packed(expected[i]), packed(actual[i]),
                         "leaf " + std::to_string(i) + " after writes, by " + name_of(root));
      }
    }
  }

  const Run& eager_;
  const Run& compiled_;
  const CallPoints& points_;
  std::vector<size_t> roots_;
  std::vector<Difference> differences_;
};

Run eager_run(const CallSide& side, uint64_t seed) {
  const compiled_autograd::Disable eager_engine;
  return Run(side, seed);
}

}  // namespace

ComparedCall compare_call(const CallSide& eager, const CallSide& compiled, uint64_t seed,
                          const CallPoints& points) {
  const bool mode_before = at::GradMode::is_enabled();
  at::AutoGradMode restore_afterwards(mode_before);
  const Run expected = eager_run(eager, seed);
  const at::Tensor state = random_state();
  const bool mode_after = at::GradMode::is_enabled();
  at::GradMode::set_enabled(mode_before);
  const Run actual(compiled, seed);

  ComparedCall result;
  if (!actual.error.empty()) result.error = expected.error;
  if (actual.is_unsupported && expected.error.empty()) result.unsupported = actual.error;
  if (expected.error.empty() != actual.error.empty()) {
    result.differences.push_back({"call throws", expected.error + actual.error});
    return result;
  }
  if (!at::equal(state, random_state())) result.differences.push_back({"random state", ""});
  if (mode_after != at::GradMode::is_enabled()) result.differences.push_back({"grad mode", ""});
  const std::vector<Difference> found = Comparison(expected, actual, points).run();
  result.differences.insert(result.differences.end(), found.begin(), found.end());
  return result;
}

}  // namespace ahead
