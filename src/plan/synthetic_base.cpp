#include "plan/synthetic_base.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/as_strided.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>

#include "ahead/errors.h"
#include "base/libtorch.h"
#include "runtime/call/base_of.h"
#include "tensors/origin.h"
#include "tensors/overlap.h"

namespace ahead::compiling {
namespace {

using runtime::Epilogue;
using runtime::Prologue;
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

/// Where elements are the same memory, the gradient of a view that is made by its strides is spread
/// over them.
void check_gradients(const Tensors& args, const std::vector<int32_t>& group) {
  bool requires_grad = false, is_expanded = false;
  for (const int32_t i : group) {
    const at::Tensor& tensor = args[static_cast<size_t>(i)];
    requires_grad |= tensor.requires_grad();
    const at::Tensor whole = tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
    is_expanded |= at::has_internal_overlap(tensor) == at::MemOverlap::Yes ||
                   at::has_internal_overlap(whole) == at::MemOverlap::Yes;
  }
  if (!requires_grad || !is_expanded) return;
  throw Unsupported("compile",
                    "arguments that share memory, of which one has several elements in one place "
                    "(expand), and that have a gradient, beside others that are written to. Pass "
                    "one of them, or a clone.");
}

/// The arguments of each storage.
std::vector<std::vector<int32_t>> by_storage(const Tensors& args) {
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
    groups.push_back(std::move(group));
  }
  return groups;
}

/// Groups of arguments that are to be one input: all of one storage, if any of them overlap. The
/// others must come along, since the common base is all of their memory.
std::vector<std::vector<int32_t>> find_groups(const Tensors& args) {
  std::vector<std::vector<int32_t>> groups;
  for (std::vector<int32_t>& group : by_storage(args)) {
    if (!any_overlap(args, group)) continue;
    check_gradients(args, group);
    groups.push_back(std::move(group));
  }
  return groups;
}

/// An argument as a view of its base.
struct Member {
  int32_t argument;
  int32_t input;
  TensorMeta meta;
  /// Autograd knows it as a view of the base, or as the base. Otherwise it only shares memory.
  bool is_tracked;
  /// The first argument that has the same version counter.
  int32_t counter;
  /// The base, which autograd knows, has the same version counter.
  bool counts_with_base;
  /// An earlier argument that is the same tensor; -1: there is none.
  int32_t same_as;
  /// It is the base itself, not a view of it.
  bool is_base;
  /// What autograd allows to do with the view.
  torch::autograd::CreationMeta creation;
};

/// A view among the arguments, and another argument that it was made of outside.
struct Origin {
  size_t depth;  ///< of the view's history
  int32_t view, origin;
};

torch::autograd::CreationMeta creation_of(const at::Tensor& tensor) {
  const auto* view =
      tensor.is_inference() ? nullptr : torch::autograd::impl::get_view_autograd_meta(tensor);
  return view != nullptr && view->has_bw_view() ? view->get_creation_meta()
                                                : torch::autograd::CreationMeta::DEFAULT;
}

int32_t first_same(const Tensors& args, const std::vector<int32_t>& group, size_t index) {
  for (int32_t earlier : group) {
    if (static_cast<size_t>(earlier) >= index) break;
    if (args[static_cast<size_t>(earlier)].is_same(args[index])) return earlier;
  }
  return -1;
}

/// Nothing if the view was made of the base itself.
std::optional<Origin> find_origin(const Tensors& args, const std::vector<int32_t>& group,
                                  int32_t view, const at::Tensor& base) {
  const at::Tensor& tensor = args[static_cast<size_t>(view)];
  if (tensor.is_leaf()) return std::nullopt;
  Origin found{0, view, -1};
  const torch::autograd::Node* node = tensor.grad_fn().get();
  for (; node->next_edges().size() == 1 && node->next_edge(0).is_valid(); ++found.depth) {
    node = node->next_edge(0).function.get();
    if (!base.is_leaf() && base.grad_fn().get() == node) break;
    for (const int32_t other : group) {
      const at::Tensor& origin = args[static_cast<size_t>(other)];
      const bool is_origin = !origin.is_leaf() && origin.grad_fn().get() == node;
      if (is_origin && found.origin < 0) found.origin = other;
    }
  }
  return found.origin < 0 ? std::nullopt : std::optional<Origin>(found);
}

/// LibTorch's wording, so that people can search for it.
[[noreturn]] void throw_without_base() {
  throw Unsupported("compile",
                    "Encountered aliased inputs that are mutated in the graph, but they have no "
                    "common base: they are of different dtypes, or those that require grad have "
                    "different ._base tensors. Pass the tensor they are views of, and take the "
                    "views inside the function.");
}

}  // namespace

void check_aliases_of_written(const Tensors& args) {
  for (const std::vector<int32_t>& group : by_storage(args)) {
    if (group.size() > 1) check_gradients(args, group);
  }
}

/// What a call of the merged function leaves behind.
struct MergedArguments::State {
  std::vector<Member> members;
  /// The less deep ones first: LibTorch changes no edges of nodes that others lead to.
  std::vector<Origin> origins;
  size_t num_bases = 0;
  size_t num_arguments = 0;
  std::vector<int32_t> others;
  /// For each result the argument it is; -1: none of those that were merged.
  std::vector<int32_t> returned;
  /// For each result the argument it is a view of, as far as autograd tracks it only so far, and
  /// its layout.
  std::vector<std::pair<int32_t, TensorMeta>> viewed;
  std::vector<int32_t> rebased;
  std::vector<Epilogue::Reshape> reshapes;
  /// By how much the function raised the version of each member.
  std::vector<uint64_t> bumps;

  Tensors call(const aot::FlatFunction& function, const Tensors& inputs) {
    Tensors args(num_arguments);
    for (size_t i = 0; i < others.size(); ++i) {
      args[static_cast<size_t>(others[i])] = inputs[num_bases + i];
    }
    for (const Member& member : members) {
      args[static_cast<size_t>(member.argument)] = member.same_as < 0
                                                       ? view_of_base(member, inputs, args)
                                                       : args[static_cast<size_t>(member.same_as)];
    }
    for (const Origin& tie : origins) note_origin(tie, args);
    const Tensors given = args;
    Tensors results = function(args);
    note_members(given, inputs);
    note_results(given, results);
    return results;
  }

 private:
  static void note_origin(const Origin& tie, const Tensors& args) {
    const at::Tensor& view = args[static_cast<size_t>(tie.view)];
    const at::Tensor& origin = args[static_cast<size_t>(tie.origin)];
    if (view.grad_fn() && origin.grad_fn()) tracing::note_origin(view, origin);
  }

  static at::Tensor strided_view(const Member& member, const at::Tensor& base) {
    return at::as_strided(base, member.meta.sizes, member.meta.strides, member.meta.offset.fixed());
  }

  /// The view was made outside, whatever grad mode the function is called in.
  static at::Tensor tracked_view(const Member& member, const at::Tensor& base) {
    using torch::autograd::CreationMeta;
    at::AutoGradMode as_outside(member.creation != CreationMeta::NO_GRAD_MODE &&
                                member.creation != CreationMeta::INFERENCE_MODE);
    const at::Tensor view = strided_view(member, base);
    if (!view.is_inference())
      torch::autograd::impl::get_view_autograd_meta(view)->set_creation_meta(member.creation);
    return view;
  }

  static at::Tensor view_of_base(const Member& member, const Tensors& inputs, const Tensors& made) {
    const at::Tensor& base = inputs[static_cast<size_t>(member.input)];
    if (member.is_base) return base;
    if (member.is_tracked) return tracked_view(member, base);
    at::Tensor view = strided_view(member, base);
    if (view.is_inference()) return view;
    const at::Tensor alone = view.detach();
    const auto counter_of = [](const at::Tensor& tensor) {
      return tensor.unsafeGetTensorImpl()->version_counter();
    };
    alone.unsafeGetTensorImpl()->set_version_counter(
        member.counts_with_base ? counter_of(inputs[static_cast<size_t>(member.input)])
        : member.counter == member.argument
            ? c10::VariableVersion(0)
            : counter_of(made[static_cast<size_t>(member.counter)]));
    return alone;
  }

  void note_members(const Tensors& given, const Tensors& inputs) {
    rebased.clear();
    reshapes.clear();
    bumps.clear();
    for (const Member& member : members) {
      const at::Tensor& now = given[static_cast<size_t>(member.argument)];
      check_memory(member, now, inputs[static_cast<size_t>(member.input)]);
      bumps.push_back(now.is_inference() ? 0 : static_cast<uint64_t>(now._version()));
      if (member.same_as >= 0) continue;
      if (!now.is_leaf()) rebased.push_back(member.argument);
      const TensorMeta meta = TensorMeta::of(now);
      if (meta.sizes != member.meta.sizes || meta.strides != member.meta.strides ||
          meta.offset != member.meta.offset) {
        check_not_base(member, now);
        reshapes.push_back({member.argument, meta});
      }
    }
  }

  static void check_memory(const Member& member, const at::Tensor& now, const at::Tensor& base) {
    if (!now.is_alias_of(base)) {
      throw Unsupported("compile",
                        member.meta.str() +
                            ": the function gives other memory to an argument that shares its own "
                            "with another one. Call set_() or resize_() outside.");
    }
    if (!member.is_tracked && now.requires_grad()) {
      throw Unsupported("compile",
                        member.meta.str() +
                            ": the function writes something that requires grad to an argument "
                            "that shares its memory with another one, which autograd does not "
                            "know. Pass views of one tensor.");
    }
  }

  /// Its gradient would have the old shape, and its history the new one.
  static void check_not_base(const Member& member, const at::Tensor& now) {
    if (!member.is_base || now.is_inference() || !now.requires_grad()) return;
    throw Unsupported("compile",
                      member.meta.str() +
                          ": the function changes the shape of an argument in place that shares "
                          "its memory with another one. Use a view of the other shape.");
  }

  void note_results(const Tensors& given, const Tensors& results) {
    returned.assign(results.size(), -1);
    viewed.assign(results.size(), {-1, {}});
    for (size_t i = 0; i < results.size(); ++i) {
      const bool is_view =
          results[i].defined() && !results[i].is_inference() && results[i].is_view();
      for (const Member& member : members) {
        const at::Tensor& argument = given[static_cast<size_t>(member.argument)];
        if (results[i].is_same(argument)) returned[i] = member.argument;
        if (is_view && !member.is_tracked && results[i]._base().is_same(argument) &&
            results[i].scalar_type() == argument.scalar_type()) {
          viewed[i] = {member.argument, TensorMeta::of(results[i])};
        }
      }
    }
  }
};

MergedArguments::MergedArguments(const aot::FlatFunction& function, const Tensors& args)
    : state_(std::make_shared<State>()) {
  std::vector<bool> is_merged(args.size());
  for (std::vector<int32_t>& group : find_groups(args)) {
    Prologue::Base base{std::move(group), {}, {}};
    const at::Tensor tensor = runtime::base_of(base, args);
    if (!tensor.defined()) throw_without_base();
    base.counters = runtime::version_counters(base, args);
    base.tracked = runtime::tracked_by(tensor, base, args);
    const bool any_tracked = std::count(base.tracked.begin(), base.tracked.end(), true) != 0;
    for (size_t i = 0; i < base.arguments.size(); ++i) {
      const auto index = static_cast<size_t>(base.arguments[i]);
      is_merged[index] = true;
      state_->members.push_back({base.arguments[i], static_cast<int32_t>(bases_.size()),
                                 TensorMeta::of(args[index]), base.tracked[i], base.counters[i],
                                 any_tracked && share_version_counter(args[index], tensor),
                                 first_same(args, base.arguments, index),
                                 args[index].is_same(tensor), creation_of(args[index])});
      if (!base.tracked[i] || state_->members.back().same_as >= 0) continue;
      if (auto origin = find_origin(args, base.arguments, base.arguments[i], tensor))
        state_->origins.push_back(*origin);
    }
    inputs_.push_back(tensor);
    bases_.push_back(std::move(base));
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (is_merged[i]) continue;
    others_.push_back(static_cast<int32_t>(i));
    inputs_.push_back(args[i]);
  }
  std::sort(state_->origins.begin(), state_->origins.end(),
            [](const Origin& a, const Origin& b) { return a.depth < b.depth; });
  state_->num_bases = bases_.size();
  state_->num_arguments = args.size();
  state_->others = others_;
  function_ = [function, state = state_](const Tensors& inputs) {
    return state->call(function, inputs);
  };
}

CallFrame MergedArguments::adapted(CallFrame frame) const {
  for (Prologue::Input& input : frame.prologue.inputs) {
    if (input.kind != Prologue::Input::Kind::Argument) continue;
    const auto index = static_cast<size_t>(input.index);
    if (index < bases_.size()) {
      input.kind = Prologue::Input::Kind::Base;
    } else {
      input.index = others_[index - bases_.size()];
    }
  }
  frame.prologue.bases = bases_;
  Epilogue& epilogue = frame.epilogue;
  epilogue.rebased_arguments = state_->rebased;
  epilogue.reshapes = state_->reshapes;
  epilogue.version_bumps = version_bumps(frame);
  for (size_t i = 0; i < epilogue.results.size(); ++i) {
    const auto& [argument, layout] = state_->viewed[i];
    Epilogue::Result& result = epilogue.results[i];
    if (state_->returned[i] >= 0) {
      result = {Epilogue::Result::Kind::Tensor,
                {runtime::Source::Kind::Argument, state_->returned[i]}};
    } else if (argument >= 0 && result.source.kind == runtime::Source::Kind::View) {
      result.source = view_of_argument(epilogue, argument, layout);
    }
  }
  return frame;
}

/// The version of a base that autograd knows is that of its views, and raised when it is written.
std::vector<Epilogue::VersionBump> MergedArguments::version_bumps(const CallFrame& frame) const {
  std::vector<bool> is_written(bases_.size());
  for (const Epilogue::Write& write : frame.epilogue.writes) {
    const Prologue::Input& input = frame.prologue.inputs[static_cast<size_t>(write.input)];
    if (input.kind == Prologue::Input::Kind::Base)
      is_written[static_cast<size_t>(input.index)] = true;
  }
  std::vector<Epilogue::VersionBump> bumps;
  for (size_t i = 0; i < state_->members.size(); ++i) {
    const Member& member = state_->members[i];
    if (member.counter != member.argument || state_->bumps[i] == 0) continue;
    if (member.counts_with_base && is_written[static_cast<size_t>(member.input)]) continue;
    bumps.push_back({member.argument, state_->bumps[i]});
  }
  return bumps;
}

runtime::Source MergedArguments::view_of_argument(Epilogue& epilogue, int32_t argument,
                                                  const TensorMeta& layout) {
  static const Operator* const as_strided = Operator::find("aten.as_strided");
  epilogue.views.push_back({&as_strided->handle(),
                            {runtime::Source::Kind::Argument, argument},
                            {at::IntArrayRef(layout.sizes).vec(),
                             at::IntArrayRef(layout.strides).vec(), layout.offset.fixed()},
                            /*no_grad=*/false});
  return {runtime::Source::Kind::View, static_cast<int32_t>(epilogue.views.size()) - 1};
}

}  // namespace ahead::compiling
