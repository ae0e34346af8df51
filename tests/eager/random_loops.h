#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Random training loops: one callable, called 10 to 20 times, whose body is a random sequence of
/// steps over tensors and over the state of its host.
namespace ahead::test {

/// What one step does. `a` and `b` are values, matrices of some rows and four columns; `number` and
/// `variant` say which of several like it. In brackets: what can be seen besides the new value.
enum class StepKind : uint8_t {
  Unary,        ///< a pointwise function or a softmax
  Binary,       ///< a sum, difference or product
  Linear,       ///< a times the weight, plus the bias
  View,         ///< a seen otherwise: the same memory
  Drop,         ///< a through the Dropout module
  Noise,        ///< a plus random numbers
  Times,        ///< a times a number that never changes
  Rate,         ///< a times the argument `rate`
  Scale,        ///< a times the host's number `scale`
  Count,        ///< ++calls; each so-and-so-manieth call changes `scale` [host]
  Constant,     ///< a plus numbers that the host writes to a new tensor
  Changing,     ///< the same, but other numbers in each so-and-so-manieth call of the loop
  Write,        ///< a is written to in place [a]
  ReadBuffer,   ///< a plus, or times, the buffer
  WriteBuffer,  ///< the buffer is written to [buffer]
  WriteWeight,  ///< the weight is written to under no_grad [weight]
  Store,        ///< a member becomes the mean of a, detached or with its history [member]
  Average,      ///< a member becomes a moving average [member]
  Shift,        ///< the second member becomes the first one, and that a new tensor [members]
  Fill,         ///< a member becomes the mean of a, unless it was filled before [member]
  ReadMember,   ///< a plus, or times, a member
  Keep,         ///< a is added to a log [log]
  IfPositive,   ///< one of two lists of steps, by a truth value that is read
  IfEqual,      ///< the same, by whether a equals b
  Argmax,       ///< a times a column that an integer which is read says
  Item,         ///< a times a real number that is read
  Hook,         ///< a hook on a value or the weight, perhaps removed [gradients]
  Learn,        ///< zero_grad, backward and step, or some of these [weight, bias]
  Penalty,      ///< a plus a gradient's norm, taken with create_graph
  Throw,        ///< an exception, by a truth value that is read
  ThrowAt,      ///< an exception, in some calls of the loop
};

struct Step {
  StepKind kind = StepKind::Unary;
  int id = 0, a = 0, b = 0;
  int variant = 0;
  double number = 0;
  std::vector<Step> yes = {}, no = {};
};

/// How the function has its state.
enum class Holder : uint8_t {
  Reference,  ///< behind a reference: no byte of the closure shows it
  Value,      ///< in the closure
  Module,     ///< in the compiled module
};

/// A program. What happens "every n" calls does not happen if n is zero.
struct RandomLoop {
  uint64_t seed = 0;
  Holder holder = Holder::Reference;
  std::vector<Step> steps;
  std::vector<int> results;
  bool returns_number = false;

  int calls = 10;
  bool are_slices = false;         ///< arguments are slices of one big tensor
  bool is_argument_twice = false;  ///< sometimes both arguments are one tensor
  bool has_backward = false;       ///< of the results, outside
  bool has_momentum = false;
  bool keeps_results = false;   ///< the results of a call live until those of the next one
  int other_size_every = 0;     ///< another number of rows
  int argument_grad_every = 0;  ///< the first argument requires grad
  int no_grad_every = 0;        ///< the call is made under no_grad
  int rate_every = 0;           ///< another `rate`
  int scale_every = 0;          ///< `scale` is changed outside
  int eval_every = 0;           ///< Dropout changes between train() and eval()
  int freeze_every = 0;         ///< the weight changes requires_grad
  int replace_every = 0;        ///< the bias is replaced
  int member_every = 0;         ///< a member is replaced outside
  int hold_every = 0;           ///< somebody holds what a member was
  int hook_every = 0;           ///< what some hooks multiply with changes
  int step_every = 0;           ///< optimizer step and zero_grad outside
  /// Members are read with their history, and there is one backward for so many calls. Gradients
  /// are then summed in another order: they need not be equal to the bit.
  int chain = 0;

  /// As pseudo-code.
  std::string str() const;
  /// Whether a program that runs from graphs may, as is documented, use old numbers for a while: it
  /// depends on numbers that no byte of the closure shows.
  bool may_be_stale() const;
  /// Whether a tensor behind the reference is replaced outside while something else may hold it.
  /// That is noticed when a program is observed again, or if Options::depends_on names it.
  bool replaces_held_tensors() const;
  /// Programs with one thing less.
  std::vector<RandomLoop> smaller() const;
};

RandomLoop make_loop(uint64_t seed);

/// One run of a program.
struct LoopRun {
  Log log;
  std::string error;  ///< what ended it, which nothing may
  Outcome outcome;    ///< of a compiled run
};
LoopRun run_loop_eagerly(const RandomLoop& loop);
LoopRun run_loop_compiled(const RandomLoop& loop, Confirm confirm);

/// How a program shows something else when it is compiled, in words; empty: it does not. Adds the
/// counts of the run that is not told to observe every call.
std::string loop_difference(const RandomLoop& loop, Outcome& outcome);

}  // namespace ahead::test
