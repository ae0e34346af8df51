#include "compile/tape_rules.h"

#include <algorithm>
#include <unordered_set>

#include "ahead/errors.h"
#include "observe/state/entry_state.h"
#include "observe/state/state_tensor.h"
#include "tensors/wrapper_keys.h"

namespace ahead::detail {

using observe::Tape;
using observe::TapeDifference;

namespace {

bool is_partly_reached(const runtime::CallPlan& plan, int32_t input) {
  for (const runtime::BackwardPlan::PartlyReached& part : plan.backward.partly_reached) {
    for (const int32_t place : part.places) {
      if (plan.backward.grad_inputs[static_cast<size_t>(place)] == input) return true;
    }
  }
  return false;
}

/// Whether the grad_fn of a tensor was made, or met, by the call before.
bool is_continued(const at::Tensor& tensor, const Tape* before) {
  const auto* history = observe::peek_history(tensor);
  return history != nullptr && before != nullptr &&
         std::any_of(before->nodes.begin(), before->nodes.end(),
                     [&](const auto& node) { return node.lock().get() == history; });
}

}  // namespace

bool reads_values(const Tape& tape) {
  return std::any_of(tape.steps.begin(), tape.steps.end(),
                     [](const observe::Step& step) { return step.reads_values(); });
}

bool has_sizes_of_values(const Tape& tape) {
  return std::any_of(tape.steps.begin(), tape.steps.end(),
                     [](const observe::Step& step) { return step.is_sized_by_values(); });
}

bool captures_wrappers(const Tape& tape) {
  return std::any_of(tape.captured.begin(), tape.captured.end(),
                     [](const observe::CapturedTensor& captured) {
                       const at::Tensor tensor = observe::lock(captured.tensor);
                       return tensor.defined() && tensors::is_wrapper(tensor);
                     });
}

bool touches_grads(const Tape& tape) {
  return std::any_of(
             tape.steps.begin(), tape.steps.end(),
             [](const observe::Step& step) { return step.kind == observe::Step::Kind::SetGrad; }) ||
         std::any_of(
             tape.captured.begin(), tape.captured.end(),
             [](const observe::CapturedTensor& captured) { return captured.grad_of != nullptr; });
}

std::vector<observe::WeakTensor> leaves_without_grads(const Tape& tape,
                                                      const runtime::CallPlan& plan) {
  std::unordered_set<observe::VariableId> used, without;
  for (const observe::Step& step : tape.steps) {
    const bool takes_away =
        step.kind == observe::Step::Kind::SetGrad && step.ins[1] == observe::no_variable;
    if (takes_away && used.count(step.ins[0]) == 0) without.insert(step.ins[0]);
    used.insert(step.ins.begin(), step.ins.end());
  }
  using Kind = runtime::Prologue::Input::Kind;
  std::unordered_set<const c10::TensorImpl*> with_used_grad;
  for (const runtime::Prologue::Input& input : plan.prologue->inputs) {
    if (input.kind != Kind::GradOfInput) continue;
    const auto& leaf = plan.prologue->inputs[static_cast<size_t>(input.index)];
    with_used_grad.insert(leaf.captured.unsafeGetTensorImpl());
  }
  std::vector<observe::WeakTensor> leaves;
  for (const observe::CapturedTensor& captured : tape.captured) {
    if (without.count(captured.id) != 0 &&
        with_used_grad.count(captured.tensor._unsafe_get_target()) == 0)
      leaves.push_back(captured.tensor);
  }
  return leaves;
}

std::string why_not_storable(const Tape& tape) {
  if (tape.is_growing)
    return "the function adds tensors to something outside itself in every call (a log, a cache "
           "that grows). Return them instead";
  for (const observe::StoredTensor& stored : tape.stored) {
    const at::Tensor tensor = observe::lock(stored.tensor);
    if (!stored.handles.empty()) continue;
    if (tensor.defined() && (!observe::can_become(tensor) || stored.owners != 1))
      return "the function stores a tensor outside itself that no program can put there (a leaf, "
             "an inference tensor, or one that is stored twice). Return it instead";
  }
  return "";
}

bool is_self_contained(const Tape& tape) {
  if (!tape.stored.empty() || !tape.moved.empty() || tape.is_growing || !tape.takings.empty())
    return false;
  return std::all_of(
      tape.captured.begin(), tape.captured.end(), [](const observe::CapturedTensor& captured) {
        return captured.owners != 0 || captured.grad_of != nullptr || captured.contents.defined();
      });
}

void check_histories(const runtime::CallPlan& plan, const std::vector<at::Tensor>& arguments,
                     const Tape* before) {
  using Kind = runtime::Prologue::Input::Kind;
  for (const runtime::Epilogue::Write& write : plan.epilogue.writes) {
    const runtime::Prologue::Input& input = plan.prologue->inputs[static_cast<size_t>(write.input)];
    const bool is_growing = input.kind == Kind::Captured ||
                            (input.kind == Kind::Argument &&
                             is_continued(arguments[static_cast<size_t>(input.index)], before));
    if (!is_growing || !write.seen_by_autograd || !is_partly_reached(plan, write.input)) continue;
    throw Unsupported("compile",
                      "the function writes something with a history to a captured tensor, or to "
                      "one that it was given before, which not all of its results depend on. Write "
                      "under no_grad, or pass a new tensor.");
  }
}

std::string in_words(const TapeDifference& found) {
  const auto mentions = [&](const char* text) {
    return found.text.find(text) != std::string::npos;
  };
  std::string remedy = "Make what changes an argument, or name it in Options::depends_on";
  if (mentions("value that is read")) {
    remedy = "Read a truth value instead ((x.sum() > 0).item<bool>()), or return the tensor";
  } else if (mentions("a number: ") || mentions(": argument ")) {
    remedy +=
        "; an optimizer of torch::optim that counts its steps (Adam, AdamW) makes its step "
        "outside, "
        "or is one of ahead::optim";
  }
  return "the function does not do the same in calls that look alike: " + found.text + ". " +
         remedy;
}

}  // namespace ahead::detail
