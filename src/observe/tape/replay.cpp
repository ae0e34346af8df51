#include "observe/tape/replay.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/copy.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ahead/errors.h"
#include "observe/recorder/seen_object.h"
#include "observe/state/entry_state.h"
#include "observe/tape/ambient_replay.h"
#include "observe/tape/expect.h"
#include "tensors/autograd_graph.h"
#include "trace/backward_writes.h"
#include "trace/dispatch/known_results.h"
#include "trace/observers/checkpoint_tags.h"
#include "trace/tracer.h"

namespace ahead::observe {
namespace {

using torch::autograd::SavedVariable;

/// Whether gradients of a node reach any tensor.
bool leads_anywhere(const torch::autograd::Node& node) {
  bool is_any = false;
  tracing::for_each_node(node.next_edges(), [&](torch::autograd::Node& other) {
    is_any |= other.next_edges().empty();
  });
  return is_any;
}

/// Stands for the node of a custom autograd function in a trace.
class ReplayedCppNode final : public torch::autograd::Node {
 public:
  explicit ReplayedCppNode(std::shared_ptr<const CustomHistory> history)
      : history_(std::move(history)), saved_(history_->saved_variables.size()) {
    for (const torch::autograd::InputMetadata& result : history_->results) {
      if (result.was_default_constructed()) {
        add_input_metadata(Node::undefined_input());
      } else {
        add_input_metadata(result.options(), result.shape_as_dim_vector(),
                           /*is_tensor_subclass=*/false, /*is_nested=*/false, result.grad_dtype());
      }
    }
  }

  /// Saves the traced tensor for a variable that the function saved for its backward.
  void save(VariableId id, const at::Tensor& traced, bool is_output) {
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (history_->saved_variables[i] == id) saved_[i] = SavedVariable(traced, is_output);
    }
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    std::vector<c10::IValue> saved = history_->formula.saved;
    size_t next = 0;
    std::vector<std::pair<at::Tensor, int64_t>> unpacked;
    for (c10::IValue& value : saved) {
      map_saved(value, [&](const at::Tensor& real) {
        // The state of a generator: the trace knows where that was.
        if (history_->saved_variables[next] < no_variable) return ++next, real;
        at::Tensor tensor = saved_[next++].unpack(getptr());
        if (tensor.defined() && !tensor.is_inference())
          unpacked.emplace_back(tensor, tensor._version());
        return tensor;
      });
    }
    torch::autograd::variable_list results = history_->formula.apply(gradients, saved);
    for (size_t i = 0; i < unpacked.size(); ++i) {
      if (unpacked[i].second == unpacked[i].first._version()) continue;
      if (tracing::is_from_outside(tracing::Tracer::current()->outside(), unpacked[i].first))
        continue;
      throw Unsupported("trace", name() +
                                     ": the backward of a custom autograd function writes to what "
                                     "its forward computed and saved. Write to a clone.");
    }
    return results;
  }

  void release_variables() override { saved_.clear(); }
  std::string name() const override { return history_->name; }

 private:
  const std::shared_ptr<const CustomHistory> history_;
  std::vector<SavedVariable> saved_;
};

/// One run of a part of a recording, under a tracer if there is one.
class Run {
 public:
  Run(const Tape& tape, const Part& part)
      : tape_(tape), part_(part), tracer_(tracing::Tracer::current()) {
    if (tracer_ != nullptr) tracer_->outside().note_replay();
    if (tracer_ != nullptr && tape.differentiates) tracer_->writer().note_differentiation();
    variables_.resize(static_cast<size_t>(tape.num_variables));
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) set(part_.ins[i], inputs[i]);
    // A leaf comes before its gradient, as a call gathers them.
    for (const bool is_grad : {false, true}) {
      for (size_t i : part_.captured) {
        const CapturedTensor& captured = tape_.captured[i];
        if ((captured.grad_of != nullptr) != is_grad) continue;
        if (const at::Tensor real = real_of(captured); real.defined())
          set(captured.id, tracer_ != nullptr ? tracer_->outside().lift(real) : real);
      }
    }
    run_steps();
    std::vector<at::Tensor> results;
    for (VariableId id : part_.outs) results.push_back(variable(id));
    return results;
  }

 private:
  void run_steps() {
    AmbientReplay ambient(tape_.ambients.front());
    for (size_t i = part_.begin; i < part_.end;) {
      const Step& step = tape_.steps[i];
      pass_marks(i);
      if (tracer_ != nullptr) tracer_->places().replay(step.place);
      for (const MadeHistory& made : tape_.histories) {
        NodePtr& node = nodes_[made.history.get()];
        if (made.before == i && !node) node = make_node(made.history);
      }
      ambient.apply(tape_.ambients[step.ambient]);
      run(step);
      i = step.end > i && !step.is_apart ? step.end : i + 1;
    }
    pass_marks(part_.end);
    ambient.apply(tape_.ambients[part_.last_ambient]);
  }

  /// Tells the trace where generators stood before this step.
  void pass_marks(size_t step) {
    for (; next_mark_ < tape_.marks.size() && tape_.marks[next_mark_].before <= step;
         ++next_mark_) {
      const GeneratorMark& mark = tape_.marks[next_mark_];
      if (tracer_ != nullptr) tracer_->generators().pass(mark.device, mark.fingerprint);
    }
  }

  void go_back(const GeneratorMark& mark) {
    if (tracer_ != nullptr) tracer_->generators().go_back(mark.device, mark.fingerprint);
  }

  at::Tensor variable(VariableId id) const {
    return id <= no_variable ? at::Tensor() : variables_[static_cast<size_t>(id)];
  }

  /// The tensor from outside, or a constant if the host made it inside the function.
  static at::Tensor real_of(const CapturedTensor& captured) {
    if (captured.owners == 0 && captured.contents.defined()) return captured.contents;
    at::Tensor tensor = lock(captured.tensor);
    return tensor.defined() ? tensor : captured.shell;
  }

  void run(const Step& step) {
    switch (step.kind) {
      case Step::Kind::Call:
        if (!step.is_apart) call(step);
        break;
      case Step::Kind::Read:
        read(step);
        break;
      case Step::Kind::History:
        give_history(step);
        break;
      case Step::Kind::RequiresGrad:
        variable(step.ins[0]).requires_grad_(step.args[0].toBool());
        if (tracer_ != nullptr) tracer_->hidden_writes().note_differentiable(variable(step.ins[0]));
        break;
      case Step::Kind::SetGrad:
        tracer_->outside().note_new_grad(variable(step.ins[0]), variable(step.ins[1]));
        break;
      case Step::Kind::Data:
        if (tracer_ != nullptr) tracer_->hidden_writes().note_detached(variable(step.ins[0]));
        set(step.outs[0], variable(step.ins[0]).variable_data());
        break;
      case Step::Kind::Fill: {
        at::NoGradGuard no_grad;
        variable(step.ins[0]).copy_(step.contents);
        break;
      }
      case Step::Kind::Number:
        set(step.outs[0], step.contents);
        break;
      case Step::Kind::EnterCheckpoint:
        checkpoints_.emplace_back(tracer_->checkpoints(), *step.policy);
        break;
      case Step::Kind::LeaveCheckpoint: {
        std::vector<at::Tensor> results;
        for (VariableId id : step.ins) results.push_back(variable(id));
        checkpoints_.back().finish(results);
        checkpoints_.pop_back();
        break;
      }
      case Step::Kind::GoBack:
        go_back(tape_.marks[step.number]);
        break;
      case Step::Kind::AddHook:
      case Step::Kind::RemoveHook:
      case Step::Kind::RetainGrad:
        break;
    }
  }

  void set(VariableId id, at::Tensor tensor) {
    if (id != no_variable) variables_[static_cast<size_t>(id)] = std::move(tensor);
  }

  void call(const Step& step) {
    torch::jit::Stack stack;
    stack.reserve(step.args.size());
    size_t next = 0;
    for (size_t i = 0; i < step.args.size(); ++i) push(step, i, next, stack);
    std::optional<tracing::KnownResults> known;
    if (!step.looks.empty() && tracer_ != nullptr) known.emplace(step.op->handle, step.looks);
    step.op->handle.callBoxed(stack);
    if (step.is_sized_by_values()) check_sizes(step, stack);
    next = 0;
    for (const c10::IValue& result : stack) {
      if (result.isTensor()) {
        set(step.outs[next++], result.toTensor());
      } else if (result.isTensorList()) {
        for (const at::Tensor& tensor : result.toTensorVector()) set(step.outs[next++], tensor);
      }
    }
  }

  /// What follows was recorded for results of these sizes. Backends must find their users, so it is
  /// the results themselves that are checked.
  static void check_sizes(const Step& step, const torch::jit::Stack& results) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (size_t i = 0; i < results.size(); ++i)
      expect_sizes(results[i].toTensor(), step.looks[i].sizes);
  }

  void push(const Step& step, size_t i, size_t& next, torch::jit::Stack& stack) const {
    const ObservedOp::Holds holds = step.op->arguments[i].holds;
    const bool was_list = step.args[i].isInt();
    if (holds == ObservedOp::Holds::Nothing) {
      const SeenObject* object = SeenObject::in(step.args[i]);
      stack.push_back(object == nullptr ? step.args[i] : object->value());
    } else if (was_list && holds == ObservedOp::Holds::List) {
      std::vector<at::Tensor> list;
      for (int64_t k = 0; k < step.args[i].toInt(); ++k) list.push_back(variable(step.ins[next++]));
      stack.emplace_back(std::move(list));
    } else if (was_list && holds == ObservedOp::Holds::OptionalList) {
      c10::List<std::optional<at::Tensor>> list;
      for (int64_t k = 0; k < step.args[i].toInt(); ++k) {
        const at::Tensor tensor = variable(step.ins[next++]);
        list.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
      }
      stack.emplace_back(std::move(list));
    } else if (step.args[i].isBool()) {
      stack.emplace_back();
    } else {
      stack.emplace_back(variable(step.ins[next++]));
    }
  }

  void read(const Step& step) {
    if (step.ins.size() == 2) {
      return expect_equal(variable(step.ins[0]), variable(step.ins[1]), step.args[0].toBool());
    }
    expect(variable(step.ins[0]).detach(), step.args[0].toScalar());
  }

  /// Gives a result the grad_fn that a custom function gave it, as a node of this trace.
  void give_history(const Step& step) {
    NodePtr& node = nodes_[step.history.get()];
    const bool is_first = !node || saved_nodes_.insert(node.get()).second;
    if (!node) node = make_node(step.history);
    auto& replayed = static_cast<ReplayedCppNode&>(*node);
    for (VariableId id : step.history->saved_variables) {
      if (is_first && variable(id).defined()) replayed.save(id, variable(id), /*is_output=*/false);
    }
    const at::Tensor result = variable(step.outs[0]);
    torch::autograd::impl::set_gradient_edge(result, {node, step.number});
    if (result.is_view()) {
      torch::autograd::impl::get_view_autograd_meta(result)->set_creation_meta(
          torch::autograd::CreationMeta::IN_CUSTOM_FUNCTION);
    }
    replayed.save(step.outs[0], result, /*is_output=*/true);
  }

  NodePtr make_node(const std::shared_ptr<const CustomHistory>& history) {
    NodePtr node = make_autograd_node<ReplayedCppNode>(history);
    torch::autograd::edge_list edges;
    for (const CustomHistory::Edge& edge : history->edges) {
      if (edge.function != nullptr) {
        NodePtr& from = nodes_[edge.function.get()];
        if (!from) from = make_node(edge.function);
        edges.emplace_back(from, edge.number);
      } else {
        edges.push_back(edge.variable == no_variable
                            ? torch::autograd::Edge()
                            : torch::autograd::impl::gradient_edge(variable(edge.variable)));
      }
    }
    node->set_next_edges(std::move(edges));
    if (!leads_anywhere(*node))
      throw Unsupported("trace",
                        node->name() +
                            ": a custom autograd function is applied to what has no "
                            "history though it requires grad (a view that was made without "
                            "grad mode), and only its backward would be run. Detach it.");
    return node;
  }

  const Tape& tape_;
  const Part& part_;
  tracing::Tracer* const tracer_;  ///< null: on real tensors
  std::vector<at::Tensor> variables_;
  std::unordered_map<const CustomHistory*, NodePtr> nodes_;
  std::unordered_set<const torch::autograd::Node*> saved_nodes_;
  std::deque<tracing::CheckpointTags> checkpoints_;
  size_t next_mark_ = 0;
};

}  // namespace

aot::FlatFunction replay(std::shared_ptr<const Tape> tape, Part part) {
  return [tape = std::move(tape), part = std::move(part)](const std::vector<at::Tensor>& inputs) {
    return Run(*tape, part).run(inputs);
  };
}

}  // namespace ahead::observe
