#include "plan/call_frame.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "ahead/errors.h"
#include "ir/layout_copy.h"
#include "ir/tensor_meta.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"

namespace ahead::compiling {
namespace {

using ops::root_of;
using ops::viewed_by;
using runtime::Epilogue;
using runtime::Prologue;
using runtime::Source;
using runtime::ViewStep;
using tracing::InputFacts;
using tracing::JointTrace;
using tracing::ResultFacts;

int32_t position(int64_t index) {
  return static_cast<int32_t>(index);
}

int64_t end_of(const TensorMeta& meta) {
  Dim end = meta.offset + 1;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i] == 0) return meta.offset.fixed();
    end += (meta.sizes[i] - 1) * meta.strides[i];
  }
  return end.fixed();
}

bool lies_within(const TensorMeta& part, const TensorMeta& whole) {
  return part.offset.fixed() >= whole.offset.fixed() && end_of(part) <= end_of(whole);
}

class FrameBuilder {
 public:
  explicit FrameBuilder(const JointTrace& trace) : trace_(trace), graph_(trace.graph) {
    int32_t next = 0;
    for (const Graph::Input& input : graph_.inputs()) {
      forward_input_.push_back(input.slot.kind == Slot::Kind::Tangent ? -1 : next++);
    }
  }

  CallFrame build() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) add_input(i);
    for (size_t i = 0; i < graph_.inputs().size(); ++i) add_write(i);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Slot slot = graph_.outputs()[i].slot;
      if (slot.kind == Slot::Kind::AccumulatedGrad) {
        epilogue_.new_grads.push_back({forward_input(slot.index), forward_position(i)});
      }
    }
    for (size_t i = 0; i < graph_.inputs().size(); ++i) add_reset(i);
    epilogue_.num_reset_views = epilogue_.views.size();
    for (const ResultFacts& facts : trace_.results) {
      epilogue_.results.push_back(
          result(facts, position(static_cast<int64_t>(epilogue_.results.size()))));
      if (facts.is_inference) add_inference_output(facts, epilogue_.results.back().source);
    }
    if (trace_.grad_mode_after != at::GradMode::is_enabled())
      epilogue_.grad_mode_after = trace_.grad_mode_after;
    std::vector<Dims> sizes = sizes_of_results();
    return {std::move(prologue_), std::move(epilogue_), std::move(sizes)};
  }

 private:
  std::vector<Dims> sizes_of_results() const {
    std::vector<Dims> sizes;
    for (size_t i = 0; i < trace_.results.size(); ++i) {
      const Source::Kind from = epilogue_.results[i].source.kind;
      const bool is_made = epilogue_.results[i].kind == Epilogue::Result::Kind::Tensor &&
                           from != Source::Kind::Input && from != Source::Kind::Argument;
      sizes.push_back(is_made ? trace_.results[i].value->meta.sizes : Dims());
    }
    return sizes;
  }

  void add_input(size_t index) {
    const Graph::Input& input = graph_.inputs()[index];
    if (input.slot.kind == Slot::Kind::Tangent) return;
    Prologue::Input planned;
    if (input.slot.kind == Slot::Kind::Primal) {
      planned = {Prologue::Input::Kind::Argument, input.slot.index, trace_.inputs[index].reached};
    } else if (trace_.inputs[index].grad_of >= 0) {
      planned = {
          Prologue::Input::Kind::GradOfInput, forward_input(trace_.inputs[index].grad_of), {}};
    } else {
      planned = {Prologue::Input::Kind::Captured, 0, input.captured};
    }
    prologue_.inputs.push_back(std::move(planned));
  }

  void add_write(size_t index) {
    const InputFacts& facts = trace_.inputs[index];
    const int32_t input = forward_input(position(static_cast<int64_t>(index)));
    if (facts.new_requires_grad) {
      epilogue_.requires_grad_changes.push_back({input, *facts.new_requires_grad});
    }
    const int64_t output =
        graph_.find_output({Slot::Kind::MutatedInput, position(static_cast<int64_t>(index))});
    const bool only_version = output < 0 && !facts.new_geometry;
    if (only_version && (facts.writes == 0 || facts.new_memory)) return;
    Epilogue::Write write{input, output < 0 ? -1 : forward_position(static_cast<size_t>(output)),
                          facts.seen_by_autograd, facts.writes, facts.new_geometry};
    if (write.geometry)
      write.geometry->offset = write.geometry->offset - graph_.inputs()[index].value->meta.offset;
    epilogue_.writes.push_back(std::move(write));
  }

  void add_reset(size_t index) {
    const InputFacts& facts = trace_.inputs[index];
    if (!facts.new_memory) return;
    const Epilogue::Result memory = result(facts.new_memory->facts, facts.new_memory->index);
    epilogue_.resets.push_back({forward_input(position(static_cast<int64_t>(index))), memory.source,
                                facts.writes, facts.new_memory->is_grown});
  }

  /// Tangents are inputs of the backward, so they do not count.
  int32_t forward_input(int32_t input) const { return forward_input_[static_cast<size_t>(input)]; }

  /// Gradients are outputs of the backward, so they do not count.
  int32_t forward_position(size_t output) const {
    int32_t count = 0;
    for (size_t i = 0; i < output; ++i) {
      count += graph_.outputs()[i].slot.kind == Slot::Kind::GradOf ? 0 : 1;
    }
    return count;
  }

  int32_t output_with(Slot slot) const {
    return forward_position(static_cast<size_t>(graph_.find_output(slot)));
  }

  Epilogue::Result result(const ResultFacts& facts, int32_t index) {
    using Kind = ResultFacts::Kind;
    Epilogue::Result planned{Epilogue::Result::Kind::Tensor};
    planned.requires_grad = facts.requires_grad;
    planned.is_leaf = facts.is_leaf;
    switch (facts.kind) {
      case Kind::Undefined:
        planned.kind = Epilogue::Result::Kind::Undefined;
        break;
      case Kind::Result:
        planned.kind = Epilogue::Result::Kind::Repeated;
        planned.repeats = facts.base;
        break;
      case Kind::Fresh:
        planned.source = {Source::Kind::Output, output_with({Slot::Kind::Output, index})};
        add_version(planned.source.index, facts);
        break;
      case Kind::Input:
        planned.source = {Source::Kind::Input, forward_input(facts.base)};
        break;
      case Kind::ViewOfInput:
        planned.source = view(facts, {Source::Kind::Input, forward_input(facts.base)});
        if (facts.was_set) planned.own_version = facts.version;
        break;
      case Kind::CustomView:
        planned.history = output_with({Slot::Kind::Output, index});
        planned.source = view(facts, {Source::Kind::Input, forward_input(facts.base)});
        break;
      case Kind::ViewOfResult:
        planned.source =
            view(facts, {Source::Kind::Output, output_with({Slot::Kind::Output, facts.base})});
        break;
      case Kind::ViewOfBase: {
        const int32_t base = output_with({Slot::Kind::IntermediateBase, facts.base});
        planned.source = view(facts, {Source::Kind::Output, base});
        add_version(base, facts);
        break;
      }
    }
    return planned;
  }

  void add_version(int32_t output, const ResultFacts& facts) {
    if (facts.version != 0 && !facts.is_inference)
      epilogue_.new_versions.push_back({output, facts.version});
  }

  /// Views are inference tensors if what they view is one.
  void add_inference_output(const ResultFacts& facts, Source source) {
    if (facts.kind == ResultFacts::Kind::ViewOfBase) {
      source = {Source::Kind::Output, output_with({Slot::Kind::IntermediateBase, facts.base})};
    } else if (facts.kind != ResultFacts::Kind::Fresh) {
      return;
    }
    std::vector<int32_t>& known = epilogue_.inference_outputs;
    if (std::find(known.begin(), known.end(), source.index) == known.end())
      known.push_back(source.index);
  }

  Source view(const ResultFacts& facts, Source base) {
    const Chain views = views_between(facts.root, facts.value);
    if (!views.is_found || is_strided(facts)) return strided_view(facts, base);
    const std::vector<const Value*>& chain = views.values;
    const bool is_beyond_detach =
        views.is_twin &&
        (num_detached(facts.value) < num_detached(facts.root) || !has_base_of_root(facts));
    if (chain.empty() && views.is_twin && !is_beyond_detach) return alias(base, facts);
    if (chain.empty()) return detached(base, facts);
    const size_t num_hidden = num_until_last_detach(chain);
    Source source = is_beyond_detach ? detached(base, facts) : base;
    for (size_t i = 0; i < chain.size(); ++i) {
      const Node& node = *chain[i]->producer();
      const bool no_grad = facts.history_length != 0
                               ? i + facts.history_length < chain.size()
                               : is_without_grad(facts, &node, i + 1 == chain.size());
      if (i < num_hidden) {
        source = shared_step(make_step(node, source, /*no_grad=*/true), facts.base_identity);
      } else {
        source = step(node, source, no_grad);
      }
      source.result = position(chain[i]->index());
    }
    return source;
  }

  /// Whether autograd knows a view of a result as one, rather than as a tensor of its own with the
  /// same memory.
  bool has_base_of_root(const ResultFacts& facts) const {
    return facts.kind != ResultFacts::Kind::ViewOfResult ||
           trace_.results[static_cast<size_t>(facts.base)].base_identity == facts.base_identity;
  }

  static bool is_strided(const ResultFacts& facts) {
    const TensorMeta &from = facts.root->meta, &to = facts.value->meta;
    return facts.is_strided_view && from.dtype == to.dtype && lies_within(to, from);
  }

  /// After a write views are made anew, with or without grad mode, whatever their history is.
  static bool is_without_grad(const ResultFacts& facts, const Node* view, bool is_last) {
    const bool is_written = facts.version != 0;
    const bool has_history = facts.requires_grad && !facts.is_leaf;
    if (is_written && facts.is_no_grad_view) return facts.is_leaf || !is_last;
    return view != nullptr && view->has(Tag::NoGrad) && !(is_written && has_history);
  }

  /// The views that lead from one value to another, outermost last.
  struct Chain {
    bool is_found = true;
    std::vector<const Value*> values;
    bool is_twin = false;  ///< they lead from a twin of the first value
  };

  /// A view that was written to, or changed its shape in place, is made anew by each of its views;
  /// such a twin will do.
  static Chain views_between(Value* from, Value* to) {
    if (root_of(from) != root_of(to)) throw_not_repeatable(*to);
    Chain chain;
    for (Value* value = to; value != from && chain.is_found; value = viewed_by(value)) {
      if (viewed_by(value) == nullptr) {
        chain.is_twin = true;
        chain.is_found = drop_twins(all_views(from), chain.values);
        break;
      }
      chain.values.push_back(value);
    }
    std::reverse(chain.values.begin(), chain.values.end());
    return chain;
  }

  static std::vector<const Value*> all_views(Value* value) {
    std::vector<const Value*> chain;
    for (; viewed_by(value) != nullptr; value = viewed_by(value)) chain.push_back(value);
    return chain;
  }

  /// Leaves of a chain of views what remains once those of another chain, which both begin with,
  /// are made. False if they do not.
  static bool drop_twins(const std::vector<const Value*>& made, std::vector<const Value*>& chain) {
    for (auto twin = made.rbegin(); twin != made.rend(); ++twin) {
      if (chain.empty() || !is_same_view(**twin, *chain.back())) return false;
      chain.pop_back();
    }
    return true;
  }

  static bool is_same_view(const Value& a, const Value& b) {
    const Node &first = *a.producer(), &second = *b.producer();
    if (&first.op() != &second.op() || a.index() != b.index()) return false;
    for (size_t i = 1; i < first.args().size(); ++i) {
      if (constant(first, i) != constant(second, i)) return false;
    }
    return true;
  }

  [[noreturn]] static void throw_not_repeatable(const Value& view) {
    throw Unsupported("compile", view.meta.str() +
                                     ": this result shares memory with another tensor in a way "
                                     "that the caller cannot repeat. Return a clone of it.");
  }

  static bool is_detach(const Node& node) {
    static const Operator* const detach = Operator::find("aten.detach");
    return &node.op() == detach;
  }

  static int64_t num_detached(Value* value) {
    const std::vector<const Value*> chain = all_views(value);
    return std::count_if(chain.begin(), chain.end(),
                         [](const Value* view) { return is_detach(*view->producer()); });
  }

  static size_t num_until_last_detach(const std::vector<const Value*>& chain) {
    size_t count = chain.size();
    while (count > 0 && !is_detach(*chain[count - 1]->producer())) --count;
    return count;
  }

  /// The view by its place in memory, of a tensor that changed its shape since the view was made.
  Source strided_view(const ResultFacts& facts, Source base) {
    static const Operator* const as_strided = Operator::find("aten.as_strided");
    const TensorMeta &from = facts.root->meta, &to = facts.value->meta;
    if (from.dtype != to.dtype || !lies_within(to, from)) throw_not_repeatable(*facts.value);
    if (num_detached(facts.value) != num_detached(facts.root)) base = detached(base, facts);
    ViewStep step{&as_strided->handle(),
                  base,
                  {at::IntArrayRef(to.sizes).vec(), at::IntArrayRef(to.strides).vec(),
                   (to.offset - from.offset).fixed()},
                  is_without_grad(facts, facts.value->producer(), /*is_last=*/true),
                  /*is_relative=*/true,
                  facts.is_one_of_several};
    epilogue_.views.push_back(std::move(step));
    return {Source::Kind::View, position(static_cast<int64_t>(epilogue_.views.size())) - 1};
  }

  Source alias(Source base, const ResultFacts& facts) {
    static const Operator* const alias = Operator::find("aten.alias");
    epilogue_.views.push_back({&alias->handle(),
                               base,
                               {},
                               is_without_grad(facts, facts.value->producer(), /*is_last=*/true)});
    return {Source::Kind::View, position(static_cast<int64_t>(epilogue_.views.size())) - 1};
  }

  Source detached(Source base, const ResultFacts& facts) {
    static const Operator* const detach = Operator::find("aten.detach");
    return shared_step({&detach->handle(), base, {}, /*no_grad=*/true}, facts.base_identity);
  }

  /// What lies before a detach() is the same for all results that are views of the detached tensor,
  /// though after a write the trace makes each of them anew. It has no history that anybody sees.
  Source shared_step(ViewStep step, const void* base_identity) {
    for (const auto& [identity, index] : shared_steps_) {
      const ViewStep& known = epilogue_.views[static_cast<size_t>(index)];
      if (identity == base_identity && known.op == step.op && known.no_grad == step.no_grad &&
          known.source == step.source && known.rest == step.rest) {
        return {Source::Kind::View, index};
      }
    }
    const int32_t index = position(static_cast<int64_t>(epilogue_.views.size()));
    shared_steps_.emplace_back(base_identity, index);
    epilogue_.views.push_back(std::move(step));
    return {Source::Kind::View, index};
  }

  static ViewStep make_step(const Node& node, Source source, bool no_grad) {
    ViewStep step{&node.op().handle(), source, {}, no_grad};
    for (size_t i = 1; i < node.args().size(); ++i) step.rest.push_back(constant(node, i));
    return step;
  }

  /// The results of one operator are made by one step, as in eager.
  Source step(const Node& node, Source source, bool no_grad) {
    const auto [known, is_new] = steps_.emplace(
        std::make_pair(&node, no_grad), position(static_cast<int64_t>(epilogue_.views.size())));
    if (is_new) epilogue_.views.push_back(make_step(node, source, no_grad));
    return {Source::Kind::View, known->second};
  }

  static c10::IValue constant(const Node& node, size_t index) {
    const Argument& argument = node.args()[index];
    if (argument.is_constant()) return argument.constant();
    throw InternalError("compile", node.op().name() + ": a view takes a second tensor.");
  }

  const JointTrace& trace_;
  const Graph& graph_;
  std::vector<int32_t> forward_input_;
  Prologue prologue_;
  Epilogue epilogue_;
  std::map<std::pair<const Node*, bool>, int32_t> steps_;
  std::vector<std::pair<const void*, int32_t>> shared_steps_;
};

}  // namespace

CallFrame frame_of(const JointTrace& trace) {
  return FrameBuilder(trace).build();
}

}  // namespace ahead::compiling
