#include "compile/synthetic_base.h"

#include <ATen/ops/as_strided.h>

#include "ahead/errors.h"
#include "base/overlap.h"
#include "runtime/base_of.h"

namespace ahead::compiling {
namespace {

using runtime::CallPlan;
using Tensors = std::vector<at::Tensor>;

bool any_overlap(const Tensors& args, const std::vector<int32_t>& group) {
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (overlap(args[static_cast<size_t>(group[i])], args[static_cast<size_t>(group[k])]))
        return true;
    }
  }
  return false;
}

/// Groups of arguments that are to be one input: all of one storage, if any of them overlap. The
/// others must come along, since the common base is all of their memory.
std::vector<std::vector<int32_t>> find_groups(const Tensors& args) {
  std::vector<std::vector<int32_t>> groups;
  std::vector<bool> is_grouped(args.size());
  for (size_t first = 0; first < args.size(); ++first) {
    if (is_grouped[first] || !args[first].has_storage()) continue;
    std::vector<int32_t> group;
    for (size_t i = first; i < args.size(); ++i) {
      if (!args[i].has_storage() || !args[i].is_alias_of(args[first])) continue;
      is_grouped[i] = true;
      group.push_back(static_cast<int32_t>(i));
    }
    if (any_overlap(args, group)) groups.push_back(std::move(group));
  }
  return groups;
}

/// An argument as a view of its base.
struct Member {
  int32_t argument;
  int32_t input;
  TensorMeta meta;
};

/// LibTorch's wording, so that people can search for it.
[[noreturn]] void throw_without_base() {
  throw Unsupported("compile",
                    "Encountered aliased inputs that are mutated in the graph, but they have no "
                    "common base: they are of different dtypes, or some are views that autograd "
                    "tracks and others are not, or their ._base tensors differ. Pass the tensor "
                    "they are views of, and take the views inside the function.");
}

}  // namespace

/// What a call of the merged function leaves behind.
struct MergedArguments::State {
  std::vector<Member> members;
  size_t num_bases = 0;
  size_t num_arguments = 0;
  std::vector<int32_t> others;
  /// For each result the argument it is; -1: none of those that were merged.
  std::vector<int32_t> returned;
  std::vector<int32_t> rebased;

  Tensors call(const aot::FlatFunction& function, const Tensors& inputs) {
    Tensors args(num_arguments);
    for (size_t i = 0; i < others.size(); ++i) {
      args[static_cast<size_t>(others[i])] = inputs[num_bases + i];
    }
    for (const Member& member : members) {
      args[static_cast<size_t>(member.argument)] =
          at::as_strided(inputs[static_cast<size_t>(member.input)], member.meta.sizes,
                         member.meta.strides, member.meta.offset);
    }
    const Tensors given = args;
    Tensors results = function(args);
    check_shapes(given);
    rebased.clear();
    for (const Member& member : members) {
      if (!given[static_cast<size_t>(member.argument)].is_leaf())
        rebased.push_back(member.argument);
    }
    returned.assign(results.size(), -1);
    for (size_t i = 0; i < results.size(); ++i) {
      for (const Member& member : members) {
        if (results[i].is_same(given[static_cast<size_t>(member.argument)]))
          returned[i] = member.argument;
      }
    }
    return results;
  }

  void check_shapes(const Tensors& args) const {
    for (const Member& member : members) {
      const at::Tensor& now = args[static_cast<size_t>(member.argument)];
      if (now.sizes() == member.meta.sizes && now.strides() == member.meta.strides) continue;
      throw Unsupported("compile",
                        member.meta.str() +
                            ": the function changes the shape of an argument that shares "
                            "its memory with another one. Work on a view instead.");
    }
  }
};

MergedArguments::MergedArguments(const aot::FlatFunction& function, const Tensors& args)
    : state_(std::make_shared<State>()) {
  std::vector<bool> is_merged(args.size());
  for (std::vector<int32_t>& group : find_groups(args)) {
    CallPlan::Base base{std::move(group)};
    const at::Tensor tensor = runtime::base_of(base, args);
    if (!tensor.defined()) throw_without_base();
    for (int32_t argument : base.arguments) {
      const auto index = static_cast<size_t>(argument);
      is_merged[index] = true;
      state_->members.push_back(
          {argument, static_cast<int32_t>(bases_.size()), TensorMeta::of(args[index])});
    }
    inputs_.push_back(tensor);
    bases_.push_back(std::move(base));
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (is_merged[i]) continue;
    others_.push_back(static_cast<int32_t>(i));
    inputs_.push_back(args[i]);
  }
  state_->num_bases = bases_.size();
  state_->num_arguments = args.size();
  state_->others = others_;
  function_ = [function, state = state_](const Tensors& inputs) {
    return state->call(function, inputs);
  };
}

void MergedArguments::adapt(CallPlan& plan) const {
  for (CallPlan::Input& input : plan.inputs) {
    if (input.kind != CallPlan::Input::Kind::Argument) continue;
    const auto index = static_cast<size_t>(input.index);
    if (index < bases_.size()) {
      input.kind = CallPlan::Input::Kind::Base;
    } else {
      input.index = others_[index - bases_.size()];
    }
  }
  plan.bases = bases_;
  plan.rebased_arguments = state_->rebased;
  for (size_t i = 0; i < plan.results.size(); ++i) {
    if (state_->returned[i] < 0) continue;
    plan.results[i] = {CallPlan::Result::Kind::Tensor,
                       {runtime::Source::Kind::Argument, state_->returned[i]}};
  }
}

}  // namespace ahead::compiling
