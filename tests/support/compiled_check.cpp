#include "support/compiled_check.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "support/like_eager.h"

namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Copies of the inputs, their memory shared as that of the originals.
struct Arguments {
  Tensors leaves;  ///< one for each input
  Tensors passed;

  Arguments(const Tensors& inputs, bool non_leaf) {
    std::map<const void*, at::Tensor> copies, bases;
    for (const at::Tensor& input : inputs) {
      at::Tensor& copy = copies[input.unsafeGetTensorImpl()];
      if (!copy.defined()) copy = copy_of(input, bases);
      leaves.push_back(copy);
    }
    std::map<const void*, at::Tensor> computed;
    for (const at::Tensor& leaf : leaves) {
      at::Tensor& tensor = computed[leaf.unsafeGetTensorImpl()];
      const bool compute = non_leaf && leaf.requires_grad() && leaf.is_leaf();
      if (!tensor.defined()) tensor = compute ? leaf.mul(1) : leaf;
      passed.push_back(tensor);
    }
  }

 private:
  static at::Tensor copy_of(const at::Tensor& input, std::map<const void*, at::Tensor>& bases) {
    if (input.is_inference()) return input.clone();
    if (input.is_view()) {
      at::Tensor& base = bases[input._base().unsafeGetTensorImpl()];
      if (!base.defined()) base = copy_of(at::Tensor(input._base()), bases);
      return base.as_strided(input.sizes(), input.strides(), input.storage_offset());
    }
    at::Tensor copy = at::empty_strided(input.sizes(), input.strides(), input.options());
    copy.copy_(input.detach());
    if (input.requires_grad()) copy.set_requires_grad(true);
    bases.emplace(input.unsafeGetTensorImpl(), copy);
    return copy;
  }
};

/// One call and all that follows from it.
struct Run {
  Arguments arguments;
  Tensors outputs;
  std::string error;

  Run(const aot::FlatFunction& function, const Tensors& inputs, bool non_leaf)
      : arguments(inputs, non_leaf) {
    try {
      outputs = function(arguments.passed);
    } catch (const std::exception& caught) {
      error = caught.what();
      if (error.empty()) error = "unknown";
    }
  }

  Tensors everything() const {
    Tensors all = arguments.passed;
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
  for (size_t i = 0; i < eager.arguments.leaves.size(); ++i) {
    if (!eager.arguments.leaves[i].is_leaf()) continue;
    EXPECT_EQ(tensor_difference(eager.arguments.leaves[i].grad(),
                                compiled.arguments.leaves[i].grad()),
              "")
        << "gradient of input " << i << " " << when;
  }
}

void expect_same_backward(const Run& eager, const Run& compiled) {
  for (size_t i = 0; i < eager.outputs.size(); ++i) {
    if (!eager.outputs[i].defined() || !eager.outputs[i].requires_grad()) continue;
    if (!compiled.outputs[i].requires_grad()) continue;
    const auto backward = [i](const Run& run) {
      run.outputs[i].sum().backward({}, /*retain_graph=*/true);
    };
    const std::string expected = error_of([&] { backward(eager); });
    const std::string actual = error_of([&] { backward(compiled); });
    EXPECT_EQ(expected.empty(), actual.empty()) << expected << actual;
    expect_same_grads(eager, compiled, "after backward of output " + std::to_string(i));
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
    const bool is_input = i < eager.arguments.passed.size();
    const size_t index = is_input ? i : i - eager.arguments.passed.size();
    expect_same_tensor(expected[i], actual[i],
                       (is_input ? "input " : "output ") + std::to_string(index));
  }
  expect_same_relations(expected, actual);
  if (check.backward) expect_same_backward(eager, compiled);
  if (check.write_to_outputs) expect_same_writes(eager, compiled);
}

}  // namespace

void expect_compiled_like_eager(const aot::FlatFunction& function, const Tensors& inputs,
                                CompiledCheck check) {
  for (Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    check.options.partitioner = partitioner;
    auto compiled = compile(function, check.options);
    for (int call = 0; call < 3; ++call) {
      SCOPED_TRACE("call " + std::to_string(call) +
                   (partitioner == Partitioner::Default ? ", default" : ", min-cut"));
      torch::manual_seed(call);
      const Run eager(function, inputs, check.non_leaf_inputs);
      const at::Tensor random_state = at::detail::getDefaultCPUGenerator().get_state();
      torch::manual_seed(call);
      const Run run([&](const Tensors& args) { return compiled(args); }, inputs,
                    check.non_leaf_inputs);
      EXPECT_TRUE(at::equal(random_state, at::detail::getDefaultCPUGenerator().get_state()));
      compare(eager, run, check);
    }
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
  }
}

}  // namespace ahead
