#include "support/compiled_check.h"

#include <gtest/gtest.h>

#include <map>

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

void compare_calls(const aot::FlatFunction& function,
                   const std::function<CallInputs()>& make_inputs, const CompiledCheck& check) {
  auto compiled = compile(function, check.options);
  const CallSide eager{function, make_inputs};
  const CallSide actual{[&](const Tensors& args) { return compiled(args); }, make_inputs};
  const CallPoints points{.backward = check.backward, .write_to_outputs = check.write_to_outputs};
  for (uint64_t i = 0; i < 3; ++i) {
    SCOPED_TRACE("call " + std::to_string(i));
    for (const auto& [what, detail] : compare_call(eager, actual, i, points).differences) {
      ADD_FAILURE() << what << ": " << detail;
    }
  }
  EXPECT_EQ(compiled.stats().observed_calls, 1u);
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

}  // namespace

void expect_compiled_like_eager(const aot::FlatFunction& function,
                                const std::function<CallInputs()>& make_inputs,
                                CompiledCheck check) {
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    for (const bool keep : {true, false}) {
      if (!keep && check.only_graph_writes) continue;
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
