#include "compile/split_program.h"

#include <ATen/core/VariableHooksInterface.h>

#include <unordered_map>

#include "ahead/errors.h"
#include "observe/state/entry_state.h"
#include "observe/tape/replay.h"
#include "runtime/call/call.h"

namespace ahead::compiling {

using observe::HookClosure;
using observe::Part;
using observe::Step;
using observe::VariableId;

namespace {

/// A hook that is not called for undefined gradients. One CompiledNode stands for all results of a
/// program, so that LibTorch would call hooks on results that nobody differentiates.
HookClosure::Function for_gradients(HookClosure::Function hook) {
  return [hook = std::move(hook)](const at::TensorBase& gradient) {
    return gradient.defined() ? hook(gradient) : at::TensorBase();
  };
}

}  // namespace

/// One call.
class SplitProgram::Run {
 public:
  Run(SplitProgram& program, const Compile& compile)
      : program_(program),
        compile_(compile),
        variables_(static_cast<size_t>(program.tape_->num_variables)) {}

  /// False: a tensor that a hook needs is gone.
  bool begin(const std::vector<at::Tensor>& arguments) {
    const Part& whole = program_.whole_;
    for (size_t i = 0; i < arguments.size(); ++i) at(whole.ins[i]) = arguments[i];
    for (const observe::CapturedTensor& captured : program_.tape_->captured) {
      if (!captured.is_state) at(captured.id) = observe::lock(captured.tensor);
    }
    for (const Piece& piece : program_.pieces_) {
      for (size_t hook : piece.part.hooks) {
        for (VariableId id : step(hook).ins) {
          if (!is_made_by_a_part(id) && !at(id).defined()) return false;
        }
      }
    }
    return true;
  }

  /// Removes the hooks again, where the call did not take place.
  void take_back() {
    for (const auto& [index, position] : positions_) at(step(index).ins[0]).remove_hook(position);
  }

  std::vector<at::Tensor> run() {
    std::vector<at::Tensor> inputs;
    std::shared_ptr<const Runner> runner;
    for (size_t i = 0; i < program_.pieces_.size(); ++i) {
      if (runner != nullptr) finish(program_.pieces_[i].part, *runner, inputs);
      runner = nullptr;
      if (i + 1 < program_.pieces_.size()) {
        Piece& next = program_.pieces_[i + 1];
        inputs.clear();
        for (VariableId id : next.part.ins) inputs.push_back(at(id));
        // Before hooks are registered on its inputs, which must not become part of it.
        runner = program_.runner_of(next, inputs, compile_);
      }
      for (size_t hook : program_.pieces_[i].part.hooks) run(step(hook), hook);
    }
    std::vector<at::Tensor> results;
    for (VariableId id : program_.whole_.outs)
      results.push_back(id == observe::no_variable ? at::Tensor() : at(id));
    return results;
  }

 private:
  at::Tensor& at(VariableId id) { return variables_[static_cast<size_t>(id)]; }
  const Step& step(size_t index) const { return program_.tape_->steps[index]; }

  bool is_made_by_a_part(VariableId id) const {
    for (const Piece& piece : program_.pieces_) {
      for (VariableId out : piece.part.outs) {
        if (out == id) return true;
      }
    }
    return false;
  }

  void finish(const Part& part, const Runner& runner, const std::vector<at::Tensor>& inputs) {
    const std::shared_ptr<const runtime::CallPlan>& plan = runner.compiled.plan;
    std::vector<at::Tensor> made =
        plan != nullptr ? runtime::call(plan, inputs) : runner.one_by_one(inputs);
    for (size_t i = 0; i < made.size(); ++i) {
      if (part.outs[i] != observe::no_variable) at(part.outs[i]) = std::move(made[i]);
    }
  }

  void run(const Step& hook, size_t index) {
    const at::Tensor& tensor = at(hook.ins[0]);
    if (hook.kind == Step::Kind::AddHook) {
      std::vector<at::Tensor> captured;
      for (VariableId id : hook.hook->variables()) captured.push_back(at(id));
      positions_[index] = at::impl::GetVariableHooks()->_register_hook(
          tensor, for_gradients(hook.hook->function(captured)));
    } else if (hook.kind == Step::Kind::RemoveHook) {
      tensor.remove_hook(positions_.at(hook.number));
      positions_.erase(hook.number);
    } else {
      tensor.retain_grad();
    }
  }

  SplitProgram& program_;
  const Compile& compile_;
  std::vector<at::Tensor> variables_;
  std::unordered_map<size_t, unsigned> positions_;
};

SplitProgram::SplitProgram(std::shared_ptr<const observe::Tape> tape)
    : tape_(std::move(tape)), whole_(observe::whole(*tape_)) {
  std::vector<Part> parts = observe::split(*tape_);
  is_divided_ = observe::is_divided(parts);
  // If it is not divided, its one program is that of the whole recording.
  if (!is_divided_) {
    parts.resize(1);
    parts.push_back(whole_);
  }
  for (Part& part : parts) pieces_.emplace_back(std::move(part));
}

void SplitProgram::use(const Compilation& whole) {
  if (is_divided_) return;
  auto runner = std::make_shared<Runner>();
  runner->compiled = whole;
  pieces_.back().runner.store(runner);
}

std::optional<std::vector<at::Tensor>> SplitProgram::run(const std::vector<at::Tensor>& arguments,
                                                         const Compile& compile) {
  Run run(*this, compile);
  if (!run.begin(arguments)) return std::nullopt;
  try {
    return run.run();
  } catch (...) {
    run.take_back();
    throw;
  }
}

std::shared_ptr<const SplitProgram::Runner> SplitProgram::runner_of(
    Piece& piece, const std::vector<at::Tensor>& inputs, const Compile& compile) const {
  if (std::shared_ptr<const Runner> known = piece.runner.load()) return known;
  auto made = std::make_shared<Runner>();
  made->one_by_one = observe::replay(tape_, piece.part);
  try {
    if (!piece.part.is_one_by_one) {
      const bool may_wait = !piece.has_waited.exchange(true);
      made->compiled = compile(made->one_by_one, inputs, may_wait);
      if (made->compiled.plan == nullptr) return made;
    }
  } catch (const Unsupported&) {
    // The operators of the part are called one by one instead.
  }
  piece.runner.store(made);
  return made;
}

size_t SplitProgram::num_backwards() const {
  size_t count = 0;
  for (const Piece& piece : pieces_) {
    const std::shared_ptr<const Runner> runner = piece.runner.load();
    if (runner != nullptr) count += runner->compiled.num_backwards();
  }
  return count;
}

std::vector<Program> SplitProgram::programs() const {
  std::vector<Program> programs;
  for (const Piece& piece : pieces_) {
    const std::shared_ptr<const Runner> runner = piece.runner.load();
    if (runner == nullptr) continue;
    for (Program& program : runner->compiled.programs()) programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace ahead::compiling
