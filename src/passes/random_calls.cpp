#include "passes/random_calls.h"

#include <map>
#include <mutex>

#include "passes/random_states.h"
#include "random/generator_state.h"

namespace ahead::passes {
namespace {

bool is_random_slot(Slot slot) {
  return slot.kind == Slot::Kind::Seed || slot.kind == Slot::Kind::Offset;
}

/// Recursive: an operator of a graph may call another compiled function.
std::recursive_mutex& mutex_of_runs() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

/// The slots of a graph, and how they are filled and emptied.
class RandomSlots {
 public:
  explicit RandomSlots(const Graph& graph) {
    for (const Graph::Input& input : graph.inputs()) {
      if (is_random_slot(input.slot)) inputs_.push_back(input.slot);
    }
    for (const Graph::Output& output : graph.outputs()) {
      if (is_random_slot(output.slot)) outputs_.push_back(output.slot);
    }
  }

  /// The states at the beginning, by index of slot.
  using States = std::map<int32_t, GeneratorState>;

  States add_inputs(std::vector<at::Tensor>& arguments) const {
    States states;
    for (const Slot& slot : inputs_) {
      auto [known, is_new] = states.try_emplace(slot.index);
      if (is_new) known->second = GeneratorState::of_default(device_of_random_slot(slot.index));
      const bool is_seed = slot.kind == Slot::Kind::Seed;
      arguments.push_back(is_seed ? known->second.seed : known->second.offset);
    }
    return states;
  }

  void take_outputs(std::vector<at::Tensor>& results, States states) const {
    const size_t first = results.size() - outputs_.size();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      GeneratorState& state = states.at(outputs_[i].index);
      (outputs_[i].kind == Slot::Kind::Seed ? state.seed : state.offset) = results[first + i];
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].kind != Slot::Kind::Offset) continue;
      states.at(outputs_[i].index).make_default(device_of_random_slot(outputs_[i].index));
    }
    results.resize(first);
  }

 private:
  std::vector<Slot> inputs_, outputs_;
};

}  // namespace

aot::Executable with_random_states(aot::Executable executable, const Graph& graph) {
  // Never resumable: what runs while a run is paused would draw from where it began.
  return [executable = std::move(executable),
          slots = RandomSlots(graph)](std::vector<at::Tensor>&& arguments) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_of_runs());
    RandomSlots::States states = slots.add_inputs(arguments);
    std::vector<at::Tensor> results = executable(std::move(arguments));
    slots.take_outputs(results, std::move(states));
    return results;
  };
}

}  // namespace ahead::passes
