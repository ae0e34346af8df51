#include "support/compiled_check.h"

#include <gtest/gtest.h>

#include <map>

#include "support/like_eager.h"

namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Copies tensors so that the copies are to each other what the originals are.
class Copier {
 public:
  explicit Copier(bool non_leaf) : non_leaf_(non_leaf) {}

  CallInputs copy(const Tensors& inputs) {
    CallInputs copies;
    for (const at::Tensor& input : inputs) copies.passed.push_back(copy(input));
    copies.leaves = std::move(leaves_);
    return copies;
  }

 private:
  at::Tensor copy(const at::Tensor& input) {
    at::Tensor& known = copies_[input.unsafeGetTensorImpl()];
    if (known.defined()) return known;
    if (input.is_inference()) return known = input.clone();
    if (!input.is_view()) return known = copy_of_base(input);
    const at::Tensor base = copy(at::Tensor(input._base()));
    return copies_[input.unsafeGetTensorImpl()] =
               base.as_strided(input.sizes(), input.strides(), input.storage_offset());
  }

  at::Tensor copy_of_base(const at::Tensor& input) {
    at::Tensor leaf = at::empty({0}, input.options());
    leaf.set_(copy_of_storage(input.storage()), input.storage_offset(), input.sizes(),
              input.strides());
    if (!input.requires_grad()) return leaf;
    leaf.set_requires_grad(true);
    leaves_.push_back(leaf);
    return non_leaf_ ? leaf.mul(1) : leaf;
  }

  c10::Storage copy_of_storage(const c10::Storage& storage) {
    c10::Storage& known = storages_[storage.unsafeGetStorageImpl()];
    if (known) return known;
    const auto bytes = at::TensorOptions().dtype(at::kByte).device(storage.device());
    const at::Tensor whole = at::empty({0}, bytes).set_(storage);
    return known = whole.clone().storage();
  }

  bool non_leaf_;
  Tensors leaves_;
  std::map<const void*, at::Tensor> copies_;
  std::map<const void*, c10::Storage> storages_;
};

/// One call and all that follows from it.
struct Run {
  CallInputs inputs;
  Tensors outputs;
  std::string error;

  Run(const aot::FlatFunction& function, CallInputs arguments) : inputs(std::move(arguments)) {
    try {
      outputs = function(inputs.passed);
    } catch (const std::exception& caught) {
      error = caught.what();
      if (error.empty()) error = "unknown";
    }
  }

  Tensors everything() const {
    Tensors all = inputs.passed;
    all.insert(all.end(), outputs.begin(), outputs.end());
    return all;
  }
};

void expect_same_tensor(const at::Tensor& eager, const at::Tensor& compiled,
                        const std::string& what) {
  EXPECT_EQ(tensor_difference(eager, compiled), "") << what;
  if (!eager.defined() || !compiled.defined()) return;
  EXPECT_EQ(eager.requires_grad(), compiled.requires_grad()) << what;
  EXPECT_EQ(eager.is_leaf(), compiled.is_leaf()) << what;
  EXPECT_EQ(eager.is_inference(), compiled.is_inference()) << what;
  if (!eager.is_inference() && !compiled.is_inference()) {
    EXPECT_EQ(eager._version(), compiled._version()) << what << ": version";
  }
}

const void* base_of(const at::Tensor& tensor) {
  const bool is_view = !tensor.is_inference() && tensor.is_view();
  return is_view ? tensor._base().unsafeGetTensorImpl() : tensor.unsafeGetTensorImpl();
}

/// Who is who: the same tensor, the same memory, views of the same base.
void expect_same_relations(const Tensors& eager, const Tensors& compiled) {
  for (size_t i = 0; i < eager.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (!eager[i].defined() || !eager[k].defined()) continue;
      if (!compiled[i].defined() || !compiled[k].defined()) continue;
      const std::string what = "tensors " + std::to_string(k) + " and " + std::to_string(i);
      EXPECT_EQ(eager[i].is_same(eager[k]), compiled[i].is_same(compiled[k])) << what;
      EXPECT_EQ(eager[i].is_alias_of(eager[k]), compiled[i].is_alias_of(compiled[k]))
          << what << " share memory";
      EXPECT_EQ(base_of(eager[i]) == base_of(eager[k]),
                base_of(compiled[i]) == base_of(compiled[k]))
          << what << " have one base";
    }
  }
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void expect_same_grads(const Run& eager, const Run& compiled, const std::string& when) {
  for (size_t i = 0; i < eager.inputs.leaves.size(); ++i) {
    EXPECT_EQ(
        tensor_difference(eager.inputs.leaves[i].grad(), compiled.inputs.leaves[i].grad()), "")
        << "gradient of leaf " << i << " " << when;
  }
}

/// Differentiates each tensor that has a history on its own: the inputs too, since those that were
/// written to have a new one.
void expect_same_backward(const Run& eager, const Run& compiled) {
  const Tensors roots = eager.everything(), compiled_roots = compiled.everything();
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].defined() || !roots[i].requires_grad()) continue;
    if (!compiled_roots[i].requires_grad()) continue;
    const auto backward = [i](const Tensors& tensors) {
      const at::Tensor& root = tensors[i];
      (root.is_complex() ? at::view_as_real(root) : root).sum().backward({}, /*retain_graph=*/true);
    };
    const std::string expected = error_of([&] { backward(roots); });
    const std::string actual = error_of([&] { backward(compiled_roots); });
    EXPECT_EQ(expected.empty(), actual.empty()) << expected << actual;
    expect_same_grads(eager, compiled, "after backward of tensor " + std::to_string(i));
  }
}

void expect_same_writes(const Run& eager, const Run& compiled) {
  for (size_t i = 0; i < eager.outputs.size(); ++i) {
    if (!eager.outputs[i].defined() || !compiled.outputs[i].defined()) continue;
    const auto write = [i](const Run& run) { run.outputs[i].mul_(2); };
    const std::string expected = error_of([&] { write(eager); });
    const std::string actual = error_of([&] { write(compiled); });
    EXPECT_EQ(expected.empty(), actual.empty())
        << "writing to output " << i << ": " << expected << actual;
    const Tensors before = eager.everything(), after = compiled.everything();
    for (size_t k = 0; k < before.size(); ++k) {
      expect_same_tensor(before[k], after[k],
                         "tensor " + std::to_string(k) + " after a write to output " +
                             std::to_string(i));
    }
  }
}

void compare(const Run& eager, const Run& compiled, const CompiledCheck& check) {
  ASSERT_EQ(eager.error.empty(), compiled.error.empty()) << eager.error << compiled.error;
  ASSERT_EQ(eager.outputs.size(), compiled.outputs.size());
  const Tensors expected = eager.everything(), actual = compiled.everything();
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool is_input = i < eager.inputs.passed.size();
    const size_t index = is_input ? i : i - eager.inputs.passed.size();
    expect_same_tensor(expected[i], actual[i],
                       (is_input ? "input " : "output ") + std::to_string(index));
  }
  expect_same_relations(expected, actual);
  if (check.backward) expect_same_backward(eager, compiled);
  if (check.write_to_outputs) expect_same_writes(eager, compiled);
}

void compare_calls(const aot::FlatFunction& function,
                   const std::function<CallInputs()>& make_inputs, const CompiledCheck& check) {
  auto compiled = compile(function, check.options);
  const aot::FlatFunction call = [&](const Tensors& args) { return compiled(args); };
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE("call " + std::to_string(i));
    const auto run = [&](const aot::FlatFunction& called) {
      torch::manual_seed(i);
      CallInputs inputs = make_inputs();
      torch::manual_seed(i);
      return Run(called, std::move(inputs));
    };
    const bool mode_before = at::GradMode::is_enabled();
    at::AutoGradMode restore_afterwards(mode_before);
    const Run eager = run(function);
    const at::Tensor random_state = at::detail::getDefaultCPUGenerator().get_state();
    const bool mode_after = at::GradMode::is_enabled();
    at::GradMode::set_enabled(mode_before);
    const Run actual = run(call);
    EXPECT_TRUE(at::equal(random_state, at::detail::getDefaultCPUGenerator().get_state()));
    EXPECT_EQ(mode_after, at::GradMode::is_enabled()) << "grad mode after the call";
    compare(eager, actual, check);
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

}  // namespace

void expect_compiled_like_eager(const aot::FlatFunction& function,
                                const std::function<CallInputs()>& make_inputs,
                                CompiledCheck check) {
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    for (const bool keep : {true, false}) {
      if (!keep && check.only_kept_mutations) continue;
      SCOPED_TRACE(std::string(partitioner == Partitioner::Default ? "default" : "min-cut") +
                   (keep ? ", writes in the graph" : ", writes outside"));
      check.options.partitioner = partitioner;
      check.options.keep_input_mutations = keep;
      compare_calls(function, make_inputs, check);
    }
  }
}

void expect_compiled_like_eager(const aot::FlatFunction& function, const Tensors& inputs,
                                CompiledCheck check) {
  expect_compiled_like_eager(
      function, [&] { return Copier(check.non_leaf_inputs).copy(inputs); }, check);
}

}  // namespace ahead
