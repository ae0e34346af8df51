#include "compile/wrapped_call.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ahead/errors.h"
#include "observe/state/entry_state.h"
#include "observe/tape/replay.h"
#include "tensors/size_marks.h"
#include "tensors/wrapper_impl.h"

namespace ahead::detail {
namespace {

using observe::Step;
using observe::Tape;
using observe::VariableId;
using subclass::Exchange;
using subclass::Recipe;
using torch::autograd::impl::bump_version;

/// How the gradient of a result is expected.
std::shared_ptr<const Exchange> exchange_of_result(const at::Tensor& result) {
  const at::Tensor tangent = tensors::as_wrapper(result).inside()->coerce_tangent(result.detach());
  return std::make_shared<const Exchange>(Exchange{Recipe::of(result), Recipe::of(tangent)});
}

torch::autograd::Node* history_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor).function.get()
                                : nullptr;
}

[[noreturn]] void refuse_wrapper(const std::string& why) {
  throw Unsupported("compile", why);
}

/// Lets a traced argument have the contents of a copy of it and, if that is asked for, its history.
void write_back(const at::Tensor& part, const at::Tensor& written, bool with_history) {
  const bool is_moved = with_history && !part.is_view();
  {
    // Otherwise the old contents would get a gradient of zeros, which are added to others.
    at::AutoGradMode mode(with_history && !is_moved);
    part.copy_(written);
  }
  if (is_moved)
    torch::autograd::impl::rebase_history(part, torch::autograd::impl::gradient_edge(written));
}

/// With the same gaps, since kernels draw, and some add up, in the order of memory.
at::Tensor copy_that_lies_alike(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.clone();
  return tensor.detach().new_empty_strided(tensor.sizes(), tensor.strides()).copy_(tensor);
}

/// The gradient of an argument in a trace that is not the first one, coerced.
at::Tensor coerce_later_gradient(const Exchange& expected, const at::Tensor& gradient) {
  try {
    return subclass::coerce_gradient(expected, gradient);
  } catch (const UserError&) {
    throw Unsupported("backward",
                      "the gradient of an argument has another class in this derivative, " +
                          Recipe::of(gradient).str() + ", than in the first, " +
                          expected.gradient.str() + ". Differentiate an eager call.");
  }
}

/// Marks a result as those of the tensors that it is made of which have its sizes.
void mark_like(const at::Tensor& result, const at::Tensor* first, const at::Tensor* last) {
  tensors::DimSet changing = 0;
  for (; first != last; ++first) {
    if (first->sizes() == result.sizes()) changing |= tensors::changing_dims(*first);
  }
  if (changing != 0) tensors::set_marks(result, tensors::weak_marks(changing));
}

bool calls_as_strided(const Tape& tape) {
  return std::any_of(tape.steps.begin(), tape.steps.end(), [](const Step& step) {
    return step.kind == Step::Kind::Call && step.op->handle.schema().name() == "aten::as_strided";
  });
}

/// The view operator that made a variable, if one did.
struct MadeView {
  size_t step;
  size_t source, result;
  VariableId viewed;
};
using MadeViews = std::unordered_map<VariableId, MadeView>;

MadeViews find_views(const Tape& tape) {
  MadeViews views;
  for (size_t i = 0; i < tape.steps.size(); ++i) {
    const Step& step = tape.steps[i];
    if (step.kind != Step::Kind::Call || step.op->is_composite) continue;
    const auto& returns = step.op->handle.schema().returns();
    if (returns.size() != 1 || returns[0].alias_info() == nullptr ||
        returns[0].alias_info()->isWrite())
      continue;
    size_t next = 0;
    for (size_t k = 0; k < step.op->arguments.size(); ++k) {
      if (step.op->arguments[k].holds != observe::ObservedOp::Holds::Tensor ||
          step.args[k].isBool())
        continue;
      const VariableId from = step.ins[next++];
      if (!step.op->arguments[k].is_viewed) continue;
      for (size_t r = 0; r < step.outs.size(); ++r) {
        if (step.outs[r] != from) views.emplace(step.outs[r], MadeView{i, k, r, from});
      }
      break;
    }
  }
  return views;
}

/// What changes its shape in place (t_, squeeze_), which calling view operators again leaves out.
std::unordered_set<VariableId> find_reshaped(const Tape& tape) {
  std::unordered_set<VariableId> reshaped;
  for (const Step& step : tape.steps) {
    if (step.kind == Step::Kind::Call && !step.ins.empty() &&
        step.op->handle.hasTag(at::Tag::inplace_view))
      reshaped.insert(step.ins.front());
  }
  return reshaped;
}

}  // namespace

WrappedProgram::WrappedProgram(const Tape& tape, const std::vector<at::Tensor>& arguments,
                               const std::vector<int64_t>& versions)
    : num_arguments_(arguments.size()), part_(observe::whole(tape)) {
  if (!tape.stored.empty() || !tape.held.empty() || !tape.takings.empty())
    refuse_wrapper("the function has state of its own beside wrappers. Make it an argument.");
  std::vector<at::Tensor> outer = arguments;
  std::vector<int64_t> before = versions;
  std::vector<size_t> others;
  for (size_t i : part_.captured) {
    const observe::CapturedTensor& captured = tape.captured[i];
    const at::Tensor tensor = observe::lock(captured.tensor);
    const bool is_wrapper = tensor.defined() && tensors::is_wrapper(tensor);
    if (is_wrapper && captured.grad_of != nullptr)
      refuse_wrapper("a wrapper is a .grad that the function uses. Use it outside.");
    if (!is_wrapper && !(tensor.defined() && tensor.requires_grad())) {
      others.push_back(i);
      continue;
    }
    part_.ins.push_back(captured.id);
    captured_.push_back(captured.tensor);
    outer.push_back(tensor);
    before.push_back(captured.version);
  }
  part_.captured = std::move(others);
  for (size_t i = 0; i < outer.size(); ++i)
    writes_.push_back(outer[i].is_inference() ? 0 : outer[i]._version() - before[i]);
  layout_.emplace(outer);
  check_written_alone(outer);
  for (size_t i = 0; i < outer.size(); ++i) {
    if (writes_[i] != 0 && layout_->is_remade(i) && calls_as_strided(tape))
      refuse_wrapper(
          "as_strided: the function writes to an argument, and has wrappers among its tensors. Use "
          "another view operator.");
  }
  found_.resize(outer.size());
  is_copied_.resize(outer.size());
  find_results(tape);
}

/// What is written to is copied, so nobody may see it through another argument.
void WrappedProgram::check_written_alone(const std::vector<at::Tensor>& outer) const {
  const auto share_memory = [&](size_t i, size_t k) {
    std::vector<at::Tensor> left, right;
    subclass::append_plain(outer[i], left);
    subclass::append_plain(outer[k], right);
    for (const at::Tensor& a : left) {
      for (const at::Tensor& b : right) {
        if (a.is_alias_of(b)) return true;
      }
    }
    return false;
  };
  for (size_t i = 0; i < outer.size(); ++i) {
    for (size_t k = 0; writes_[i] != 0 && k < outer.size(); ++k) {
      if (layout_->first_of(i) == layout_->first_of(k)) continue;
      if ((layout_->is_remade(i) || layout_->is_remade(k)) && share_memory(i, k))
        refuse_wrapper(
            "Encountered aliased inputs that are mutated in the graph, but at least one of them is "
            "a tensor subclass. This is not supported today. Pass a clone.");
    }
  }
}

/// Finds out which results are arguments, or views of them or of other results.
void WrappedProgram::find_results(const Tape& tape) {
  const MadeViews views = find_views(tape);
  const std::unordered_set<VariableId> reshaped = find_reshaped(tape);
  std::unordered_map<VariableId, size_t> roots;
  for (size_t r = 0; r < part_.outs.size(); ++r) {
    Result& result = results_.emplace_back();
    VariableId id = part_.outs[r];
    const auto argument_of = [&](VariableId variable) {
      const auto found = std::find(part_.ins.begin(), part_.ins.end(), variable);
      return found == part_.ins.end() ? part_.ins.size()
                                      : static_cast<size_t>(found - part_.ins.begin());
    };
    const auto earlier_of = [&](VariableId variable) {
      const auto end = part_.outs.begin() + static_cast<int64_t>(r);
      return static_cast<size_t>(std::find(part_.outs.begin(), end, variable) - part_.outs.begin());
    };
    while (true) {
      result.is_reshaped |= reshaped.contains(id);
      if (const size_t argument = argument_of(id); argument < part_.ins.size()) {
        result.kind = result.views.empty() ? Result::Kind::Argument : Result::Kind::ViewOfArgument;
        result.index = argument;
        break;
      }
      if (const size_t other = earlier_of(id); other < r) {
        result.kind = Result::Kind::ViewOfResult;
        result.index = other;
        break;
      }
      const auto view = views.find(id);
      if (view == views.end()) {
        result.index = static_cast<size_t>(id);  // the root, until all results are known
        break;
      }
      const Step& step = tape.steps[view->second.step];
      result.views.insert(result.views.begin(), {&step, view->second.source, view->second.result,
                                                 tape.ambients[step.ambient].grad_mode});
      id = view->second.viewed;
    }
    if (result.kind != Result::Kind::Made) continue;
    // Nobody can tell that it is a view if nothing else of its memory is returned, but for one:
    // its history after a write leads to all elements that as_strided reaches.
    result.is_strided = is_strided_view_of_view(result.views);
    result.views.clear();
    if (!roots.emplace(static_cast<VariableId>(result.index), r).second)
      result.kind = Result::Kind::ViewOfResult, result.index = part_.outs.size();
  }
}

std::vector<at::Tensor> WrappedProgram::all_outer(const std::vector<at::Tensor>& arguments) const {
  std::vector<at::Tensor> outer = arguments;
  for (const observe::WeakTensor& captured : captured_) {
    outer.push_back(observe::lock(captured));
    if (!outer.back().defined()) return {};
  }
  return outer;
}

std::optional<WrappedLayout::Apart> WrappedProgram::arguments(
    const std::vector<at::Tensor>& outer) const {
  if (captured_.empty() && layout_->holds(outer)) return layout_->take_apart(outer);
  const std::vector<at::Tensor> all = all_outer(outer);
  if (!layout_->holds(all)) return std::nullopt;
  return layout_->take_apart(all);
}

runtime::StaticArguments WrappedProgram::static_arguments() const {
  runtime::StaticArguments is_static;
  for (size_t i = 0; i < layout_->exchanges().size(); ++i) {
    if (layout_->first_of(i) != i) continue;
    const Exchange& exchange = *layout_->exchanges()[i];
    is_static.resize(is_static.size() + exchange.tensor.num_plain(), i >= num_arguments_);
    // Carriers are made anew for each call.
    if (exchange.has_carriers())
      is_static.resize(is_static.size() + exchange.gradient.num_plain(), false);
  }
  return is_static;
}

bool WrappedProgram::has_other_gradients() {
  bool is_any = false;
  for (size_t i = 0; i < found_.size(); ++i) {
    if (!found_[i]) continue;
    is_any = true;
    if (writes_[i] != 0)
      refuse_wrapper("an argument that the function writes to gets a gradient of another class, " +
                     found_[i]->str() + ". Write to a clone.");
    layout_->set_gradient(i, std::move(*found_[i]));
    found_[i].reset();
  }
  is_settled_ = !is_any;
  return is_any;
}

std::vector<TreeSpec> WrappedProgram::constants() const {
  std::vector<TreeSpec> given, made;
  for (const auto& exchange : layout_->exchanges()) {
    subclass::append_metadata(exchange->tensor, given);
    if (exchange->has_carriers()) subclass::append_metadata(exchange->gradient, made);
  }
  for (const Result& result : results_) {
    if (result.exchange == nullptr) continue;
    subclass::append_metadata(result.exchange->tensor, made);
    subclass::append_metadata(result.exchange->gradient, made);
  }
  std::erase_if(made, [&](const TreeSpec& metadata) {
    return std::find(given.begin(), given.end(), metadata) != given.end();
  });
  return made;
}

aot::FlatFunction WrappedProgram::plain_function(const std::shared_ptr<const Tape>& tape) {
  tape_ = tape;
  return [self = shared_from_this(), replay = observe::replay(tape, part_)](
             const std::vector<at::Tensor>& plain) { return self->run(replay, plain); };
}

std::vector<at::Tensor> WrappedProgram::run(const aot::FlatFunction& replay,
                                            const std::vector<at::Tensor>& plain) {
  std::vector<at::Tensor> outer;
  std::vector<const at::Tensor*> parts;
  std::vector<WrapperLook> looks;
  std::vector<torch::autograd::Node*> histories;
  const at::Tensor* next = plain.data();
  for (size_t i = 0; i < layout_->exchanges().size(); ++i) {
    const std::shared_ptr<const Exchange>& exchange = layout_->exchanges()[i];
    parts.push_back(next);
    if (layout_->first_of(i) != i) {
      outer.push_back(outer[layout_->first_of(i)]);
    } else if (exchange->tensor.is_plain() && !next->requires_grad() && !exchange->has_carriers()) {
      outer.push_back(*next++);
    } else {
      outer.push_back(subclass::put_together(
          exchange, next, [this, i](const Exchange& expected, const at::Tensor& gradient) {
            if (is_settled_) return coerce_later_gradient(expected, gradient);
            found_[i] = Recipe::of(gradient);
            return at::Tensor();
          }));
      // What is written to is a copy, which is copied back as autograd saw it.
      if (writes_[i] != 0) outer.back() = copy_that_lies_alike(outer.back());
      is_copied_[i] = writes_[i] != 0;
    }
    looks.push_back(WrapperLook::of(outer.back()));
    histories.push_back(history_of(outer.back()));
  }
  std::vector<at::Tensor> made = replay(outer);
  std::vector<at::Tensor> results;
  for (size_t r = 0; r < made.size(); ++r) note_result(results_[r], made[r], results);
  for (size_t i = 0; i < outer.size(); ++i) {
    const bool is_copy = layout_->first_of(i) == i && !outer[i].is_same(*parts[i]);
    if (!is_copy || writes_[i] == 0) continue;
    if (WrapperLook::of(outer[i]) != looks[i])
      refuse_wrapper(
          "the function changes the shape of an argument in place, and has wrappers among its "
          "tensors. Return a view of it instead.");
    std::vector<at::Tensor> written;
    const bool is_seen = history_of(outer[i]) != histories[i];
    if (is_seen && layout_->is_view(i))
      refuse_wrapper(
          "the function writes to a wrapper that is a view, and the write has a gradient. Write to "
          "what it is a view of, or to a clone.");
    subclass::take_apart(is_seen ? outer[i] : outer[i].detach(), layout_->exchanges()[i], written);
    for (size_t k = 0; k < written.size(); ++k)
      write_back(parts[i][k], written[k], is_seen && written[k].requires_grad());
  }
  return results;
}

/// Whether the plan sees what a result that is a plain tensor shares memory with.
bool WrappedProgram::is_known_to_plan(const Result& result) const {
  switch (result.kind) {
    case Result::Kind::Made:
      return true;
    case Result::Kind::ViewOfResult:
      return result.index == part_.outs.size() || results_[result.index].is_from_plan;
    case Result::Kind::Argument:
    case Result::Kind::ViewOfArgument:
      return !layout_->is_remade(result.index);
  }
  return false;
}

/// Appends the plain tensors of a result, and notes how it is made of them.
void WrappedProgram::note_result(Result& result, const at::Tensor& made,
                                 std::vector<at::Tensor>& plain) {
  const bool is_plain = !made.defined() || !tensors::is_wrapper(made);
  if (!is_settled_) result.is_from_plan = is_plain && is_known_to_plan(result);
  if (result.is_from_plan) return plain.push_back(made);
  if (result.kind == Result::Kind::ViewOfResult && result.index == part_.outs.size())
    refuse_wrapper(
        "two results are views of one wrapper that is no result (an intermediate base), which is a "
        "tensor subclass. This is not supported today. Return what they are views of, too.");
  if (result.is_reshaped && !result.views.empty())
    refuse_wrapper(
        "a result is a view of an argument or of another result, and the function changes the "
        "shape of one of them in place. Use a view operator instead.");
  if (made.requires_grad() && !result.views.empty() &&
      (made.is_leaf() || is_made_by(result, "aten::detach")))
    refuse_wrapper(
        "a result is a view of an argument or of another result, and the function makes it require "
        "grad. Do so outside.");
  if (made.requires_grad() && is_made_by(result, "aten::as_strided"))
    refuse_wrapper(
        "as_strided: a result is such a view of an argument or of another result, and its gradient "
        "would be a plain tensor. Use another view operator.");
  if (result.kind != Result::Kind::Made) return;
  if (result.is_strided && made.requires_grad())
    refuse_wrapper(
        "as_strided: a result is a wrapper that it made of a view, and may reach elements beyond "
        "that view. Use another view operator, or return a clone.");
  // Also in traces whose answer is known: they have to call the same operators as the first one.
  auto exchange = exchange_of_result(made);
  if (!is_settled_) result.exchange = std::move(exchange);
  subclass::take_apart(made, result.exchange, plain);
}

bool WrappedProgram::is_made_by(const Result& result, const char* view) {
  return std::any_of(result.views.begin(), result.views.end(), [&](const ViewCall& call) {
    return call.step->op->handle.schema().name() == view;
  });
}

bool WrappedProgram::is_strided_view_of_view(const std::vector<ViewCall>& views) {
  return views.size() > 1 &&
         std::any_of(views.begin() + 1, views.end(), [](const ViewCall& call) {
           return call.step->op->handle.schema().name() == "aten::as_strided";
         });
}

/// Calls the view operators that lead from a tensor to a result, each once in a call.
at::Tensor WrappedProgram::view(const Result& result, at::Tensor from, MadeByViews& made) {
  for (const ViewCall& call : result.views) {
    if (const auto known = made.find(call.step); known != made.end()) {
      from = known->second[call.result];
      continue;
    }
    at::AutoGradMode mode(call.grad_mode);
    torch::jit::Stack stack = call.step->args;
    for (size_t i = 0; i < stack.size(); ++i) {
      if (call.step->op->arguments[i].holds != observe::ObservedOp::Holds::Nothing)
        stack[i] = c10::IValue();
    }
    stack[call.source] = std::move(from);
    call.step->op->handle.callBoxed(stack);
    std::vector<at::Tensor> views = stack[0].isTensor()
                                        ? std::vector<at::Tensor>{stack[0].toTensor()}
                                        : stack[0].toTensorVector();
    from = views[call.result];
    made.emplace(call.step, std::move(views));
  }
  return from;
}

std::vector<at::Tensor> WrappedProgram::finish(const std::vector<at::Tensor>& arguments,
                                               const WrappedLayout::Apart& given,
                                               std::vector<at::Tensor> plain) const {
  const std::vector<at::Tensor> outer = all_outer(arguments);
  for (size_t i = 0; i < outer.size(); ++i) {
    if (writes_[i] == 0 || layout_->first_of(i) != i) continue;
    if (tensors::is_wrapper(outer[i]))
      subclass::note_written(outer[i], layout_->exchanges()[i], &given.plain[given.begins[i]],
                             writes_[i]);
    else if (is_copied_[i])
      for (int64_t write = 1; write < writes_[i]; ++write) bump_version(outer[i]);
  }
  std::vector<at::Tensor> results;
  MadeByViews made;
  const at::Tensor* next = plain.data();
  for (const Result& result : results_) {
    if (result.is_from_plan) {
      results.push_back(*next++);
    } else if (result.kind == Result::Kind::Made) {
      const at::Tensor* first = next;
      results.push_back(subclass::put_together(result.exchange, next, subclass::coerce_gradient));
      mark_like(results.back(), first, next);
    } else if (result.kind == Result::Kind::ViewOfResult) {
      results.push_back(view(result, results[result.index], made));
    } else {
      results.push_back(view(result, outer[result.index], made));
    }
  }
  return results;
}

}  // namespace ahead::detail
