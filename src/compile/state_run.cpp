#include "compile/state_run.h"

#include <algorithm>

#include "observe/state/entry_state.h"
#include "observe/state/handles.h"
#include "observe/state/state_tensor.h"

namespace ahead::detail {

bool is_traceable(const observe::Tape& tape) {
  return std::all_of(tape.captured.begin(), tape.captured.end(),
                     [](const observe::CapturedTensor& captured) {
                       return !captured.handle || captured.is_state;
                     });
}

std::vector<StateTensor> states_of(const observe::Tape& tape) {
  std::vector<StateTensor> states;
  for (const observe::StoredTensor& stored : tape.stored)
    states.push_back({stored.tensor, stored.owners, stored.handles});
  return states;
}

std::vector<StateArgument> state_arguments_of(const observe::Tape& tape) {
  std::vector<StateArgument> arguments;
  for (const observe::CapturedTensor& captured : tape.captured) {
    if (!captured.is_state) continue;
    StateArgument& argument =
        arguments.emplace_back(StateArgument{captured.handle, captured.tensor, captured.host});
    for (const observe::StoredTensor& stored : tape.stored) {
      if (!captured.handle && captured.stored_before == stored.id) argument.object = stored.tensor;
    }
  }
  return arguments;
}

std::optional<StateRun> StateRun::begin(const Entry& entry, const Situation& now) {
  std::optional<std::vector<at::Tensor>> arguments = entry.arguments(now);
  if (!arguments) return std::nullopt;
  StateRun run(entry.seen.load(), *now.host, std::move(*arguments));
  // An object that is to become another tensor must not be saved by the program's CompiledNode.
  for (size_t i = 0; i < run.seen_->arguments.size(); ++i) {
    at::Tensor& argument = run.arguments_[now.inputs.leaves.size() + i];
    const StateArgument& state = run.seen_->arguments[i];
    if (!state.handle && !state.host) argument = observe::alias_of(argument);
  }
  for (const StateTensor& state : run.seen_->states) {
    run.objects_.push_back(state.handles.empty() ? observe::lock(state.object) : at::Tensor());
    if (state.handles.empty() && !run.objects_.back().defined()) return std::nullopt;
  }
  for (const observe::HostTaking& taking : run.seen_->tape->takings) {
    run.hosts_.push_back(taking.state.lock());
    if (run.hosts_.back() == nullptr) return std::nullopt;
  }
  return run;
}

void StateRun::store(std::vector<at::Tensor>& results) {
  std::vector<at::Tensor> moved;
  for (const observe::MovedTensor& move : seen_->tape->moved)
    moved.push_back(move.from ? observe::handle_at(host_, *move.from) : at::Tensor());
  const size_t num_results = results.size() - objects_.size();
  for (size_t i = 0; i < objects_.size(); ++i) {
    const at::Tensor& made = results[num_results + i];
    if (objects_[i].defined()) {
      observe::become(objects_[i], made);
      // A result that is stored as well is the object that is stored.
      for (size_t k = 0; k < num_results; ++k) {
        if (results[k].is_same(made)) results[k] = objects_[i];
      }
    }
    for (observe::Handle handle : seen_->states[i].handles)
      observe::handle_at(host_, handle) = made;
  }
  for (size_t i = 0; i < moved.size(); ++i)
    observe::handle_at(host_, seen_->tape->moved[i].to) = std::move(moved[i]);
  results.resize(num_results);
  for (const std::shared_ptr<HostState>& host : hosts_) host->commit();
}

}  // namespace ahead::detail
