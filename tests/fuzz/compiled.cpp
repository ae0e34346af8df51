#include "fuzz/compiled.h"

#include <algorithm>
#include <string_view>

#include "ahead/ahead.h"
#include "fuzz/call_numbers.h"
#include "fuzz/draft.h"
#include "fuzz/eager.h"
#include "fuzz/random.h"
#include "support/call_comparison.h"
#include "support/journal.h"

namespace ahead::fuzz {
namespace {

/// A tensor that is passed and captured as well can be told from two different ones only when
/// another one is passed: such functions are observed again, the others trusted from the start.
constexpr uint64_t num_trusted_calls = 3, num_confirmed_calls = 6;

/// The inputs of one side: arguments for one call, captured ones for all.
class Inputs {
 public:
  explicit Inputs(const Program& program) : program_(program), made_(make_inputs(program.inputs)) {
    for (const MadeInput& input : made_) versions_.push_back(input.tensor._version());
  }

  aot::FlatFunction function() const { return function_of(program_, tensors()); }
  Tensors tensors() const { return tensors_of(made_); }

  CallInputs next_call() { return next_call(program_); }
  /// The arguments as another program has them, whose captured inputs are the same.
  CallInputs next_call(const Program& now) {
    if (num_made_++ != 0 || &now != &program_) made_ = make_inputs(now.inputs, made_);
    CallInputs inputs;
    for (size_t i = 0; i < made_.size(); ++i) {
      (program_.inputs[i].captured ? inputs.captured : inputs.passed).push_back(made_[i].tensor);
      if (made_[i].leaf.defined()) inputs.leaves.push_back(made_[i].leaf);
    }
    return inputs;
  }

  /// A call wrote to a captured tensor that has a gradient, so that the next one goes on from
  /// there, and gradients of both are added up in another order.
  bool calls_are_chained() const {
    for (size_t i = 0; i < made_.size(); ++i) {
      const at::Tensor& tensor = made_[i].tensor;
      if (program_.inputs[i].captured && tensor.requires_grad() &&
          tensor._version() != versions_[i])
        return true;
    }
    return false;
  }

 private:
  const Program& program_;
  std::vector<MadeInput> made_;
  std::vector<int64_t> versions_;
  int num_made_ = 0;
};

/// Whether backwards may write to other tensors than gradients.
bool writes_to_buffers(const Program& program) {
  return std::any_of(program.body.begin(), program.body.end(), [](const Instruction& line) {
    return std::string_view(line.operation->call.text).find("Buffer::apply") !=
           std::string_view::npos;
  });
}

/// Whether one call may go on from what another one wrote to a tensor that has a gradient.
bool may_be_chained(const Program& program) {
  for (const Input& input : program.inputs) {
    if (input.captured && (input.requires_grad || !input.is_own() || writes_to_buffers(program)))
      return true;
  }
  return false;
}

bool has_wrappers(const Program& program) {
  return std::any_of(program.inputs.begin(), program.inputs.end(),
                     [](const Input& input) { return input.wrapper; });
}

/// The graphs as they were traced and cut.
std::string graphs_of(const std::vector<ahead::Program>& programs) {
  std::string text;
  for (const ahead::Program& program : programs) {
    const bool is_early = program.name == "trace" || program.name.starts_with("partition");
    if (is_early) text += program.name + "\n" + program.graph->str();
  }
  return text;
}

/// Whether one tensor, or its memory, is both an argument and captured.
bool is_passed_and_captured(const Program& program) {
  const auto origin = [&](size_t i) {
    while (!program.inputs[i].is_own())
      i = static_cast<size_t>(program.inputs[i].origin_position());
    return i;
  };
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (program.inputs[i].captured != program.inputs[k].captured && origin(i) == origin(k))
        return true;
    }
  }
  return false;
}

/// Hooks run with the backward, so that their functions run eagerly: as eager does.
bool registers_hook(const std::string& reason) {
  return reason.find("register_hook") != std::string::npos;
}

/// LibTorch refuses to trace what eager does with wrappers, which then runs eagerly.
bool is_thrown_by_trace(const std::string& error) {
  return error.find("thrown while tracing; without Options::fullgraph") != std::string::npos;
}

bool is_differentiated_twice(const Program& program) {
  return program.seed % 4 == 0;
}

/// Whether what eager gives changes, beyond what roundings account for, with the last bits of what
/// it is given: then nobody can tell what is right.
bool is_ill_conditioned(const Program& program) {
  for (const double noise : {2.0, 16.0, 128.0}) {
    Program noisy = program;
    for (Input& input : noisy.inputs) input.noise = noise;
    Inputs exact_inputs(program), noisy_inputs(noisy);
    const CallSide exact{exact_inputs.function(), [&] { return exact_inputs.next_call(); }};
    const CallSide other{noisy_inputs.function(), [&] { return noisy_inputs.next_call(); }};
    const CallPoints points{.rounding = kernel_rounding / 2,
                            .double_backward = is_differentiated_twice(program),
                            .new_versions = false,
                            .writes_in_backward = true};
    if (!compare_call(exact, other, 0, points).differences.empty()) return true;
  }
  return false;
}

Verdict check_with(const Program& program, Options options, bool has_hooks = false) {
  const bool is_confirmed = is_passed_and_captured(program);
  if (is_confirmed) options.confirm = Confirm::Doubling;
  const uint64_t num_calls = is_confirmed ? num_confirmed_calls : num_trusted_calls;
  Inputs eager(program), compiled_inputs(program);
  journal::take();
  auto compiled = compile(compiled_inputs.function(), options);
  const CallSide expected{eager.function(), [&] { return eager.next_call(); }};
  const CallSide actual{[&](const Tensors& args) { return compiled(args); },
                        [&] { return compiled_inputs.next_call(); }};
  for (uint64_t call = 0; call < num_calls; ++call) {
    const bool is_last = call + 1 == num_calls;
    // Some factories write to what they make, which a graph need not: versions count from there.
    // Divided programs, and tangents of wrappers that lie otherwise, are added up in other orders.
    const bool is_exact = !eager.calls_are_chained() && !has_wrappers(program) && !has_hooks;
    const CallPoints points{
        .exact_gradients = is_exact,
        .rounding = options.backend == "native" ? kernel_rounding : 0,
        .has_wrappers = has_wrappers(program),
        .double_backward = is_last && is_differentiated_twice(program),
        .double_backward_may_be_refused = options.fullgraph || has_wrappers(program),
        .new_versions = false,
        // Either side may have saved what is written to, and a later call
        // would have to do with it.
        .write_to_outputs = is_last || !may_be_chained(program),
        .writes_in_backward = true,
        .take_effects = journal::take};
    const ComparedCall compared = compare_call(expected, actual, call, points);
    // How far eager got before it threw shows in the inputs; a trace leaves them alone.
    if (!compared.error.empty()) return {Verdict::Kind::BothThrow, compared.error, "", ""};
    if (registers_hook(compared.unsupported) && options.fullgraph) {
      options.fullgraph = false;
      return check_with(program, options, /*has_hooks=*/true);
    }
    if (!compared.unsupported.empty())
      return {Verdict::Kind::Unsupported, compared.unsupported, "", ""};
    if (compared.differences.empty()) continue;
    const Difference& first = compared.differences.front();
    if (has_wrappers(program) && is_thrown_by_trace(first.detail))
      return {Verdict::Kind::Unsupported, first.detail, "", ""};
    return {Verdict::Kind::Differs, first.what,
            "call " + std::to_string(call) + ": " + first.detail, graphs_of(compiled.programs())};
  }
  if (compiled.stats().eager_calls == 0) return {};
  const std::string reason = compiled.explain(compiled_inputs.next_call().passed);
  return registers_hook(reason) ? Verdict() : Verdict{Verdict::Kind::Unsupported, reason, "", ""};
}

std::string name_of(const Options& options) {
  const bool is_default = options.partitioner.kind() == Partitioner::Default;
  return std::string(is_default ? "default" : "min-cut") +
         (options.keep_input_mutations ? ", writes in the graph" : ", writes outside") +
         (options.functionalize_rng ? ", numbers from states" : "");
}

using NumberedFunction = std::function<Tensors(const Tensors&, double, int64_t)>;

/// The program as a function that reads the size of its batch itself.
NumberedFunction numbered_function_of(const Program& program, const Tensors& inputs) {
  const BatchPlace place = batch_place(program).value_or(BatchPlace{});
  size_t argument = 0;
  for (size_t i = 0; i < place.input; ++i) argument += program.inputs[i].captured ? 0 : 1;
  const bool has_batch = batch_place(program).has_value();
  return [&program, inputs, place, argument, has_batch](const Tensors& arguments, double rate,
                                                        int64_t count) {
    CallNumbers numbers{.count = count, .rate = rate};
    if (has_batch) numbers.batch = arguments[argument].size(static_cast<int64_t>(place.dim));
    const Program now = in_call(program, numbers);
    return function_of(now, inputs)(arguments);
  };
}

bool throws(const Program& program, const CallNumbers& numbers) {
  const Program now = in_call(program, numbers);
  return EagerRun(now).threw();
}

std::string text_of(const CallNumbers& numbers) {
  return "batch " + std::to_string(numbers.batch) + ", count " + std::to_string(numbers.count) +
         ", rate " + Number(numbers.rate).str();
}

/// Numbers for some calls, most of which come several times.
std::vector<CallNumbers> random_calls(const Program& program, Random& random) {
  constexpr int64_t most_kinds = 5, num_rounds = 3;
  std::vector<CallNumbers> kinds{CallNumbers()};
  const bool counts = random.chance(0.4), rates = random.chance(0.4);
  for (int64_t i = 0; i < 2 * most_kinds; ++i) {
    CallNumbers numbers;
    numbers.batch = random.pick<int64_t>({0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14});
    if (counts) numbers.count = random.pick<int64_t>({0, 1, 2, 5, 9, 11});
    if (rates) numbers.rate = random.pick<double>({0.0, 1.0, 0.25, 0.3125, 0.75});
    if (static_cast<int64_t>(kinds.size()) < most_kinds && !throws(program, numbers))
      kinds.push_back(numbers);
  }
  const bool has_new_rates = random.chance(0.2);
  std::vector<CallNumbers> calls;
  for (size_t i = 0; i < num_rounds * kinds.size(); ++i) {
    calls.push_back(random.pick(kinds));
    if (has_new_rates) calls.back().rate = 0.01 * static_cast<double>(i + 2);
  }
  return calls;
}

}  // namespace

Verdict check_sizes(const Program& program) {
  at::AutoGradMode mode(!program.no_grad);
  Random random(program.seed);
  Options options{.recompile_limit = 32};
  if (random.chance(0.3) && !is_passed_and_captured(program)) options.confirm = Confirm::Never;
  // Derivatives that need an open trace would fix the sizes.
  options.double_backward = is_differentiated_twice(program) || random.chance(0.3);
  options.keep_input_mutations = has_wrappers(program) && program.seed % 2 == 1;
  options.functionalize_rng = program.seed % 4 == 2;
  if (throws(program, {})) return {Verdict::Kind::BothThrow, "", "", ""};
  Inputs eager(program), compiled_inputs(program);
  const NumberedFunction function = numbered_function_of(program, eager.tensors());
  auto compiled = compile(numbered_function_of(program, compiled_inputs.tensors()), options);
  const std::vector<CallNumbers> calls = random_calls(program, random);
  for (size_t call = 0; call < calls.size(); ++call) {
    const CallNumbers& numbers = calls[call];
    const Program now = in_call(program, numbers);
    const CallSide expected{
        [&](const Tensors& args) { return function(args, numbers.rate, numbers.count); },
        [&] { return eager.next_call(now); }};
    const CallSide actual{
        [&](const Tensors& args) { return compiled(args, numbers.rate, numbers.count); },
        [&] { return compiled_inputs.next_call(now); }};
    const bool is_last = call + 1 == calls.size();
    const CallPoints points{.exact_gradients = !eager.calls_are_chained() && !has_wrappers(program),
                            .has_wrappers = has_wrappers(program),
                            .double_backward = is_last && is_differentiated_twice(program),
                            .new_versions = false,
                            .write_to_outputs = is_last || !may_be_chained(program),
                            .writes_in_backward = true};
    const ComparedCall compared = compare_call(expected, actual, call, points);
    if (!compared.error.empty()) return {Verdict::Kind::BothThrow, compared.error, "", ""};
    if (compared.differences.empty()) continue;
    const Difference& first = compared.differences.front();
    std::string detail;
    for (size_t i = 0; i <= call; ++i) detail += text_of(calls[i]) + "\n";
    return {Verdict::Kind::Differs, first.what,
            detail + "call " + std::to_string(call) + ": " + first.detail,
            graphs_of(compiled.programs())};
  }
  if (compiled.stats().eager_calls == 0) return {};
  const CallNumbers& numbers = calls.back();
  const std::string reason = compiled.explain(
      compiled_inputs.next_call(in_call(program, numbers)).passed, numbers.rate, numbers.count);
  return registers_hook(reason) ? Verdict() : Verdict{Verdict::Kind::Unsupported, reason, "", ""};
}

Verdict check_captured_sizes(const Program& program) {
  compiled_autograd::reset();
  const compiled_autograd::Enable on;
  return check_sizes(program);
}

Verdict check_native(const Program& program) {
  at::AutoGradMode mode(!program.no_grad);
  Options options{
      .backend = "native", .fullgraph = true, .confirm = Confirm::Never, .debug_asserts = true};
  options.partitioner = program.seed % 2 == 0 ? Partitioner::Default : Partitioner::MinCut;
  options.keep_input_mutations = program.seed / 2 % 2 == 0;
  options.functionalize_rng = program.seed / 4 % 2 == 0;
  Verdict verdict = check_with(program, options);
  if (verdict.kind != Verdict::Kind::Differs) return verdict;
  const bool is_number =
      verdict.what == "value" || verdict.what.find("gradient") != std::string::npos;
  if (is_number && is_ill_conditioned(program))
    return {Verdict::Kind::Unsupported, "ill-conditioned", "", ""};
  verdict.detail = name_of(options) + ", " + verdict.detail;
  return verdict;
}

Verdict check_compiled(const Program& program) {
  at::AutoGradMode mode(!program.no_grad);
  Options options{.fullgraph = true, .confirm = Confirm::Never, .debug_asserts = true};
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    for (const bool keep_input_mutations : {true, false}) {
      options.partitioner = partitioner;
      options.keep_input_mutations = keep_input_mutations;
      // Each program is drawn in both ways, and over the programs all combinations occur.
      options.functionalize_rng = keep_input_mutations == (program.seed % 2 == 0);
      Verdict verdict = check_with(program, options);
      if (verdict.kind == Verdict::Kind::Agrees) continue;
      if (verdict.kind == Verdict::Kind::Differs)
        verdict.detail = name_of(options) + ", " + verdict.detail;
      return verdict;
    }
  }
  // Without fullgraph there is nothing to refuse once the forward has run.
  options.fullgraph = false;
  return is_differentiated_twice(program) ? check_with(program, options) : Verdict();
}

}  // namespace ahead::fuzz
