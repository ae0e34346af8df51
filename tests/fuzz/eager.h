#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fuzz/program.h"

namespace ahead::fuzz {

/// One run of a program in eager mode: the truth.
class EagerRun {
 public:
  /// Makes the inputs and runs forward, as a checkpointed region if that is asked for.
  explicit EagerRun(const Program& program, bool is_checkpointed = false);

  bool threw() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  const std::vector<MadeInput>& inputs() const { return inputs_; }
  const Tensors& results() const { return results_; }
  /// Whether the program wrote to the input at this position.
  bool mutated(size_t position) const {
    return inputs_[position].tensor._version() != versions_[position];
  }
  /// The generator's state after all that ran so far.
  const at::Tensor& random_state() const { return random_state_; }

  /// The tensors that have a gradient: mutated inputs, then results.
  Tensors roots() const;
  /// Goes on to run backward; returns one gradient for each input, undefined where there is none.
  Tensors backward(const Tensors& roots, const Tensors& tangents);

 private:
  std::vector<MadeInput> inputs_;
  std::vector<int64_t> versions_;
  Tensors results_;
  at::Tensor random_state_;
  std::string error_;
};

/// Tangents are drawn with seeds from here on, inputs with others.
constexpr uint64_t first_tangent_seed = 7001;

/// Everything that runs a program starts from this state of the default generator.
void seed_generator();
/// Goes on from a state that was asked for before.
void set_random_state(const at::Tensor& state);

Tensors tensors_of(const std::vector<MadeInput>& inputs);

}  // namespace ahead::fuzz
