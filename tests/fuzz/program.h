#pragma once

#include <string>
#include <vector>

#include "ahead/executable.h"
#include "fuzz/call.h"
#include "fuzz/input.h"

namespace ahead::fuzz {

struct Operation;

/// Names a variable of a program: a result if not negative, else the input at position -1 - name.
using Variable = int;

inline Variable input_variable(size_t position) {
  return -1 - static_cast<int>(position);
}
inline bool is_input(Variable variable) {
  return variable < 0;
}
inline size_t input_position(Variable variable) {
  return static_cast<size_t>(-1 - variable);
}

/// One line of a program. Its results are the variables that follow those of the lines above.
struct Instruction {
  const Operation* operation = nullptr;
  std::vector<Variable> operands;
  Ints n;
  std::vector<Number> s;
  Ints dims;
  at::ScalarType type = at::kFloat;
  int num_results = 0;
  bool no_grad = false;
  /// Called in a scope of autocast of its own.
  bool autocast = false;
};

/// A random tensor program, as data.
struct Program {
  uint64_t seed = 0;
  std::vector<Input> inputs;
  std::vector<Instruction> body;
  std::vector<Variable> results;
  /// The whole program runs without grad mode.
  bool no_grad = false;
  /// Its calls have other sizes and numbers each time (fuzz/call_numbers.h).
  bool has_call_numbers = false;

  /// The program as C++ for a test that includes fuzz/prelude.h.
  std::string str() const;
  /// The number of the first result of this line.
  Variable first_result(size_t line) const;
};

/// Runs a program line by line on whatever tensors it is given.
class Machine {
 public:
  /// One tensor for each input of the program.
  explicit Machine(Tensors inputs) : inputs_(std::move(inputs)) {}

  /// Throws what the operator throws, and c10::Error if it gives fewer results; more are dropped.
  void step(const Instruction& instruction);
  /// Runs the instruction whatever the number of its results, and returns that.
  int step_and_count(const Instruction& instruction);
  const at::Tensor& get(Variable variable) const;
  void add_input(at::Tensor input) { inputs_.push_back(std::move(input)); }
  void drop_last_input() { inputs_.pop_back(); }
  size_t num_inputs() const { return inputs_.size(); }
  size_t num_values() const { return values_.size(); }

 private:
  Tensors run(const Instruction& instruction) const;

  Tensors inputs_, values_;
};

/// The program as a function of its inputs that are not captured; `inputs` are all of them.
aot::FlatFunction function_of(const Program& program, const Tensors& inputs);
/// Those of the inputs that are arguments.
Tensors arguments_of(const Program& program, const Tensors& inputs);

}  // namespace ahead::fuzz
