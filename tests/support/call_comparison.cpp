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

  std::vector<std::string> effects;

  Run(const CallSide& side, uint64_t seed, const CallPoints& points) {
    torch::manual_seed(seed);
    inputs = side.make_inputs();
    torch::manual_seed(seed);
    if (points.take_effects) points.take_effects();
    error = error_of([&] {
      try {
        outputs = side.function(inputs.passed);
      } catch (const Unsupported&) {
        is_unsupported = true;
        throw;
      }
    });
    if (points.take_effects) effects = points.take_effects();
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
  return random_tangent(at::empty_like(root.detach(), {}, at::MemoryFormat::Contiguous),
                        /*seed=*/31);
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
  const Tensors expected = plain_tensors(eager), actual = plain_tensors(compiled);
  if (expected.size() != actual.size()) return tensor_difference(eager, compiled);
  if (expected.size() > 1) {
    std::string difference;
    for (size_t i = 0; i < expected.size() && difference.empty(); ++i)
      difference = closeness_difference(expected[i], actual[i], through);
    return difference;
  }
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
    compare_effects("of the call", eager_.effects, compiled_.effects);
    compare_everything("");
    compare_relations();
    find_roots();
    if (points_.backward) compare_backward();
    if (!error_.empty()) return std::move(differences_);
    if (points_.double_backward) compare_double_backward();
    if (points_.write_to_outputs && error_.empty()) compare_writes();
    return std::move(differences_);
  }

  /// What backwards that may write threw on both sides: nobody knows what was written before.
  const std::string& error() const { return error_; }

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

  void compare_effects(const std::string& where, const std::vector<std::string>& eager,
                       const std::vector<std::string>& compiled) {
    const auto list = [](const std::vector<std::string>& lines) {
      std::string text;
      for (const std::string& line : lines) text += "\n    " + line;
      return text;
    };
    expect(eager == compiled, "effects",
           where + list(eager) + "\n  in eager, compiled" + list(compiled));
  }

  std::vector<std::string> effects() const {
    return points_.take_effects ? points_.take_effects() : std::vector<std::string>();
  }

  void compare_everything(const std::string& when) {
    const Tensors eager = eager_.everything(), compiled = compiled_.everything();
    for (size_t i = 0; i < eager.size(); ++i)
      compare_tensor(eager[i], compiled[i], name_of(i) + when);
  }

  void compare_tensor(const at::Tensor& eager, const at::Tensor& compiled,
                      const std::string& where) {
    const std::string difference = value_difference(eager, compiled);
    expect(difference.empty(), "value", where + ": " + difference);
    if (!eager.defined() || !compiled.defined()) return;
    const bool versions = points_.new_versions || is_known_before(eager);
    for (const auto& [what, detail] :
         flag_differences(TensorFlags(eager), TensorFlags(compiled), versions))
      expect(false, what, where + ": " + detail);
  }

  std::string value_difference(const at::Tensor& eager, const at::Tensor& compiled) const {
    return tensor_difference(eager, compiled, CompareLayout::Meaningful, points_.rounding);
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
      if (points_.has_wrappers) forget_gradients();
      compare_backward(root, " after backward of the sum of ", [](const at::Tensor& tensor) {
        at::AutoGradMode mode(true);
        (tensor.is_complex() ? at::view_as_real(tensor) : tensor)
            .sum()
            .backward({}, /*retain_graph=*/true);
        return at::Tensor();
      });
      compare_backward(root, " after backward of ", [](const at::Tensor& tensor) {
        const at::Tensor tangent = tangent_for(tensor);
        tensor.backward(tangent, /*retain_graph=*/true);
        return tangent;
      });
      if (!error_.empty()) return;
    }
  }

  void compare_backward(size_t root, const std::string& when,
                        const std::function<at::Tensor(const at::Tensor&)>& backward) {
    const at::Tensor eager = eager_.everything()[root], compiled = compiled_.everything()[root];
    at::Tensor tangent, compiled_tangent;
    const std::string expected = error_of_eager([&] { tangent = backward(eager); });
    const std::vector<std::string> eager_effects = effects();
    const std::string actual = error_of([&] { compiled_tangent = backward(compiled); });
    const std::vector<std::string> compiled_effects = effects();
    if (is_refused_write(actual)) return void(error_ = actual);
    if (only_eager_complains(expected, actual)) return forget_gradients();
    expect(expected.empty() == actual.empty(), "backward throws",
           name_of(root) + who_throws(expected, actual));
    if (!expected.empty() && points_.writes_in_backward) return void(error_ = expected);
    if (expected.empty() && actual.empty()) {
      compare_effects(when + name_of(root), eager_effects, compiled_effects);
      if (points_.writes_in_backward)
        compare_written(tangent, compiled_tangent, when + name_of(root));
    }
    for (size_t i = 0; i < eager_.inputs.leaves.size(); ++i) {
      compare_gradient(eager_.inputs.leaves[i].grad(), compiled_.inputs.leaves[i].grad(),
                       "leaf " + std::to_string(i) + when + name_of(root));
    }
  }

  /// Refusals of backwards that write, which are made when they run.
  bool is_refused_write(const std::string& error) const {
    static const std::vector<std::string> refusals = {
        "several custom autograd functions write to this tensor",
        "which the backward of CompiledFunction reads and writes to",
        "input mutations with requires_grad in backward for create_graph=True",
        "writes to a tensor that its backward did not make",
        "it would happen once for each of several gradients",
        "and a second derivative would do so again"};
    return points_.writes_in_backward &&
           std::any_of(refusals.begin(), refusals.end(), [&](const std::string& refusal) {
             return error.find(refusal) != std::string::npos;
           });
  }

  /// What wrappers do not have, compiled or eagerly: second derivatives of another class, and
  /// formulas of LibTorch's that take them for tensors of the Meta device.
  bool is_refused_for_wrappers(const std::string& eager, const std::string& compiled) const {
    return points_.has_wrappers &&
           (compiled.find("has another class in this derivative") != std::string::npos ||
            eager.find("found at least two devices, meta and cpu") != std::string::npos);
  }

  void compare_written(const at::Tensor& tangent, const at::Tensor& compiled_tangent,
                       const std::string& when) {
    compare_everything(when);
    // Where gradients are added up, what is written to is a sum, though eager may have one only.
    if (tangent.defined() && roots_.size() == 1)
      compare_tensor(tangent, compiled_tangent, "tangent" + when);
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
    const Tensors parts = plain_tensors(compiled);
    if (points_.has_wrappers && parts.size() > 1 && plain_tensors(eager).size() == 1) {
      for (const at::Tensor& part : parts) compare_gradient(eager, part, where);
      return;
    }
    const std::string difference = points_.exact_gradients ? value_difference(eager, compiled)
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
      const std::vector<std::string> eager_effects = effects();
      const std::string compiled_error = error_of([&] {
        try {
          actual = second_gradients(compiled_, root);
        } catch (const Unsupported&) {
          is_unsupported = points_.double_backward_may_be_refused;
          if (!is_unsupported) throw;
        }
      });
      const std::vector<std::string> compiled_effects = effects();
      is_unsupported |= is_refused_for_wrappers(error, compiled_error);
      // Second derivatives of divided programs are those of what each part saved.
      is_unsupported |= points_.double_backward_may_be_refused &&
                        compiled_error.find("modified by an inplace") != std::string::npos;
      if (is_refused_write(compiled_error)) return void(error_ = compiled_error);
      if (is_unsupported || (!error.empty() && !compiled_error.empty())) continue;
      if (only_eager_complains(error, compiled_error)) continue;
      expect(error.empty() == compiled_error.empty(), "double backward throws",
             name_of(root) + who_throws(error, compiled_error));
      compare_effects("of second derivatives of " + name_of(root), eager_effects, compiled_effects);
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

  /// Views of wrappers are made again without the reasons for which nobody may write to them.
  static bool is_forbidden_view(const std::string& error) {
    return error.find("function that returns multiple views") != std::string::npos ||
           error.find("was created in no_grad mode") != std::string::npos;
  }

  void compare_writes() {
    for (size_t i = 0; i < eager_.outputs.size(); ++i) {
      if (!eager_.outputs[i].defined() || !compiled_.outputs[i].defined()) continue;
      const auto write = [i](const Run& run) { run.outputs[i].mul_(2); };
      const std::string expected = error_of([&] { write(eager_); });
      const std::string actual = error_of([&] { write(compiled_); });
      const std::string where = "writing to output " + std::to_string(i);
      if (points_.has_wrappers && actual.empty() && is_forbidden_view(expected)) return;
      expect(expected.empty() == actual.empty(), "write throws",
             where + who_throws(expected, actual));
      compare_everything(" after " + where);
    }
    if (points_.backward && !eager_.inputs.leaves.empty()) compare_backward_after_writes();
  }

  /// Gradients that are not accumulated are laid out in any way, at any place of a storage.
  static at::Tensor packed(const at::Tensor& gradient) {
    if (!gradient.defined()) return gradient;
    return gradient.is_sparse() ? gradient.clone() : gradient.clone(at::MemoryFormat::Contiguous);
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
        at::Tensor eager = packed(expected[i]);
        // Nothing but zeros flows from outputs that are no roots.
        if (!eager.defined() && actual[i].defined()) eager = at::zeros_like(packed(actual[i]));
        compare_gradient(eager, packed(actual[i]),
                         "leaf " + std::to_string(i) + " after writes, by " + name_of(root));
      }
    }
  }

  const Run& eager_;
  const Run& compiled_;
  const CallPoints& points_;
  std::vector<size_t> roots_;
  std::vector<Difference> differences_;
  std::string error_;
};

Run eager_run(const CallSide& side, uint64_t seed, const CallPoints& points) {
  const compiled_autograd::Disable eager_engine;
  return Run(side, seed, points);
}

}  // namespace

ComparedCall compare_call(const CallSide& eager, const CallSide& compiled, uint64_t seed,
                          const CallPoints& points) {
  const bool mode_before = at::GradMode::is_enabled();
  at::AutoGradMode restore_afterwards(mode_before);
  const Run expected = eager_run(eager, seed, points);
  const at::Tensor state = random_state();
  const bool mode_after = at::GradMode::is_enabled();
  at::GradMode::set_enabled(mode_before);
  const Run actual(compiled, seed, points);

  ComparedCall result;
  if (!actual.error.empty()) result.error = expected.error;
  if (actual.is_unsupported && expected.error.empty()) result.unsupported = actual.error;
  if (expected.error.empty() != actual.error.empty()) {
    result.differences.push_back({"call throws", expected.error + actual.error});
    return result;
  }
  if (!at::equal(state, random_state())) result.differences.push_back({"random state", ""});
  if (mode_after != at::GradMode::is_enabled()) result.differences.push_back({"grad mode", ""});
  Comparison comparison(expected, actual, points);
  const std::vector<Difference> found = comparison.run();
  if (result.error.empty()) result.error = comparison.error();
  result.differences.insert(result.differences.end(), found.begin(), found.end());
  return result;
}

}  // namespace ahead
