#include "ops/op_checks.h"

#include <ahead/compile.h>
#include <ahead/compiled_autograd.h>
#include <ahead/errors.h>
#include <ahead/interpret.h>
#include <ahead/trace.h>

#include <algorithm>

#include "ops/eager.h"
#include "support/eager.h"

namespace ahead::samples {
namespace {

/// Whether to expect that the tracer throws because a value is read.
enum class Values : uint8_t { Unread, Read };

/// Runs a check and puts the sample's name before what it says or throws.
template <class F>
std::string report(const Sample& sample, F check, Values values = Values::Unread) {
  std::string text;
  try {
    text = check();
    if (values == Values::Read) text = "reads values on the host, but the tracer did not notice";
  } catch (const DataDependent& error) {
    if (values == Values::Unread) text = std::string("threw ") + error.what_without_backtrace();
  } catch (const c10::Error& error) {
    text = std::string("threw ") + error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = std::string("threw ") + error.what();
  }
  return text.empty() ? "" : sample.op + " (" + sample.label + "): " + text;
}

/// The first text that is not empty, with the graph below it.
std::string explain(const Graph& graph, std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text + "\n" + graph.str();
  }
  return "";
}

std::string compare_lists(const Sample& sample, const char* what, const Tensors& expected,
                          const Tensors& actual, bool gradients = false) {
  const bool rounds = !sample.rounds.empty() || (gradients && !sample.gradient_rounds.empty());
  if (expected.size() != actual.size()) {
    return c10::str(what, ": expected ", expected.size(), ", got ", actual.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string text = difference(expected[i], actual[i], rounds);
    if (!text.empty()) return c10::str(what, " ", i, ": ", text);
  }
  return "";
}

/// The layout of outputs that alias a mutated argument is not the graph's to decide.
std::string compare_outputs(const Sample& sample, const EagerRun& eager, const Tensors& actual) {
  Tensors outputs = eager.outputs;
  for (size_t i = 0; i < outputs.size() && outputs.size() == actual.size(); ++i) {
    if (!aliases_mutated_argument(eager, i) || outputs[i].sizes() != actual[i].sizes()) continue;
    outputs[i] = at::empty_strided(actual[i].sizes(), actual[i].strides(), outputs[i].options())
                     .copy_(outputs[i].detach());
  }
  return compare_lists(sample, "output", outputs, actual);
}

bool eager_refuses(const Sample& sample) {
  try {
    run_eager_with_gradients(sample);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

std::string check_tracer_refuses(const Sample& sample, const Tensors& arguments) {
  try {
    const JointGraph graph = trace_joint(sample.make_function(), arguments);
    return explain(graph, {"eager refuses to differentiate, the tracer does not"});
  } catch (const std::exception&) {
    return "";
  }
}

/// Samples of integers among those of an operator that is not differentiable have nothing to
/// refuse.
std::string check_eager_refuses(const Sample& sample) {
  if (eager_refuses(sample)) return "";
  const Tensors tangents = run_eager_with_gradients(sample).tangents;
  const bool any = std::any_of(tangents.begin(), tangents.end(),
                               [](const at::Tensor& tangent) { return tangent.defined(); });
  return any ? "is said not to be differentiable, but its backward runs" : "";
}

/// What one run of a graph gave, sorted by what it is.
struct GraphRun {
  Tensors outputs;
  Tensors mutated;    ///< for each argument: its new contents; undefined: it was not mutated
  Tensors gradients;  ///< for each argument; undefined: none
};

/// For each graph output: the number of the argument its slot speaks of.
size_t argument_of(const Graph& graph, const Graph::Output& output) {
  const Slot& input = graph.inputs().at(output.slot.index).slot;
  TORCH_CHECK(input.kind == Slot::Kind::Primal, output.slot.str(), " is about ", input.str());
  return input.index;
}

/// The tangent of an output. An argument that eager does not count as written to has none: a graph
/// also returns arguments that an operator may write to but did not.
at::Tensor tangent_for(const Graph& graph, const Graph::Output& output, const EagerRun& eager) {
  if (output.slot.kind == Slot::Kind::Output) return eager.tangents.at(output.slot.index);
  const size_t argument = argument_of(graph, output);
  if (!eager.mutated[argument]) return {};
  size_t position = eager.outputs.size();
  for (size_t i = 0; i < argument; ++i) position += eager.mutated[i] ? 1 : 0;
  return eager.tangents.at(position);
}

Tensors bind_inputs(const Graph& graph, const Tensors& arguments, const EagerRun& eager) {
  Tensors bound;
  for (const Graph::Input& input : graph.inputs()) {
    if (input.slot.kind == Slot::Kind::Primal) {
      bound.push_back(arguments.at(input.slot.index));
    } else if (input.slot.kind == Slot::Kind::Tangent) {
      bound.push_back(tangent_for(graph, graph.outputs().at(input.slot.index), eager));
    }
  }
  return bound;
}

GraphRun run_graph(const Sample& sample, const Graph& graph, const Tensors& arguments,
                   const EagerRun& eager) {
  seed(sample);
  const Tensors results = interpret(graph, bind_inputs(graph, arguments, eager));
  GraphRun run{{}, Tensors(arguments.size()), Tensors(arguments.size())};
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Graph::Output& output = graph.outputs()[i];
    if (output.slot.kind == Slot::Kind::Output) {
      if (run.outputs.size() <= size_t(output.slot.index))
        run.outputs.resize(output.slot.index + 1);
      run.outputs[output.slot.index] = results.at(i);
    } else if (output.slot.kind == Slot::Kind::MutatedInput) {
      run.mutated[argument_of(graph, output)] = results.at(i);
    } else if (output.slot.kind == Slot::Kind::GradOf) {
      run.gradients[argument_of(graph, output)] = results.at(i);
    }
  }
  return run;
}

/// Writes the new contents back as a caller would, and returns the arguments.
Tensors write_back(Tensors arguments, const Tensors& mutated) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (mutated[i].defined()) arguments[i].copy_(mutated[i]);
  }
  return arguments;
}

std::string compare_meta(const std::string& what, const TensorMeta& traced,
                         const at::Tensor& real) {
  if (!real.defined()) return what + ": the kernel gives an undefined tensor";
  TensorMeta expected = TensorMeta::of(real);
  expected.requires_grad = traced.requires_grad;
  if (expected == traced) return "";
  return what + ": the kernel gives " + expected.str() + ", traced as " + traced.str();
}

/// Compares what the graph says about every value with what a run gives.
std::string compare_nodes(const Sample& sample, Graph graph, const Tensors& arguments,
                          const EagerRun& eager) {
  std::vector<std::pair<std::string, TensorMeta>> traced(graph.outputs().size());
  for (const Node& node : graph.nodes()) {
    for (Value* value : node.results()) {
      if (value == nullptr) continue;
      graph.add_output(value, {Slot::Kind::Saved, int32_t(traced.size())});
      traced.emplace_back(node.op().name(), value->meta);
    }
  }
  seed(sample);
  const Tensors results = interpret(graph, bind_inputs(graph, arguments, eager));
  for (size_t i = 0; i < traced.size(); ++i) {
    if (traced[i].first.empty()) continue;
    const std::string text = compare_meta(traced[i].first, traced[i].second, results.at(i));
    if (!text.empty()) return text;
  }
  return "";
}

std::string compare_output_metas(const Graph& graph, const EagerRun& eager) {
  for (const Graph::Output& output : graph.outputs()) {
    if (output.slot.kind != Slot::Kind::Output) continue;
    if (aliases_mutated_argument(eager, output.slot.index)) continue;
    const at::Tensor& real = eager.outputs.at(output.slot.index);
    if (output.value == nullptr && !real.defined()) continue;
    if (output.value == nullptr) return output.slot.str() + ": undefined in the graph only";
    const std::string text = compare_meta(output.slot.str(), output.value->meta, real);
    if (!text.empty()) return text;
  }
  return "";
}

/// Compares which outputs share memory with which arguments. Outputs that alias a mutated argument
/// are made from its new contents by the caller of the graph.
std::string compare_aliases(const EagerRun& eager, const Tensors& outputs,
                            const Tensors& arguments) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || outputs[i].numel() == 0) continue;
    for (size_t j = 0; j < arguments.size(); ++j) {
      if (eager.mutated[j]) continue;
      const bool expected = eager.outputs[i].is_alias_of(eager.arguments[j]);
      if (expected == outputs[i].is_alias_of(arguments[j])) continue;
      return c10::str("output ", i, expected ? " aliases" : " does not alias", " argument ", j,
                      " in eager mode only");
    }
  }
  return "";
}

std::string compare_requires_grad(const Graph& graph, const EagerRun& eager) {
  for (const Graph::Output& output : graph.outputs()) {
    if (output.slot.kind != Slot::Kind::Output && output.slot.kind != Slot::Kind::MutatedInput)
      continue;
    const bool expected = tangent_for(graph, output, eager).defined();
    if (output.requires_grad == expected) continue;
    return output.slot.str() + (expected ? " requires" : " does not require") +
           " grad in eager mode only";
  }
  return "";
}

/// Compares what the graph expects of its tangents with those that eager was given.
std::string compare_tangents(const Graph& graph, const EagerRun& eager) {
  for (const Graph::Input& input : graph.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    const at::Tensor tangent = tangent_for(graph, graph.outputs().at(input.slot.index), eager);
    const std::string text = compare_meta(input.slot.str(), input.value->meta, tangent);
    if (!text.empty()) return text;
  }
  return "";
}

std::string compare_flags(const Tensors& expected, const Tensors& actual) {
  for (size_t i = 0; i < expected.size(); ++i) {
    for (const auto& [what, detail] :
         flag_differences(TensorFlags(expected[i]), TensorFlags(actual[i]), /*versions=*/false))
      return c10::str("output ", i, ": ", what, ": ", detail);
  }
  return "";
}

/// The gradient of an argument that is written to comes through the write, which lays it out anew
/// and may add a zero to it.
Tensors after_writes(const std::vector<bool>& mutated, Tensors gradients) {
  for (size_t i = 0; i < gradients.size() && i < mutated.size(); ++i) {
    if (mutated[i] && gradients[i].defined()) gradients[i] = gradients[i].detach().contiguous() + 0;
  }
  return gradients;
}

/// Everything a caller sees after a call and its backward.
std::string compare_runs(const Sample& sample, const EagerRun& eager, const EagerRun& run) {
  for (const std::string& text :
       {compare_lists(sample, "output", eager.outputs, run.outputs),
        compare_flags(eager.outputs, run.outputs),
        compare_aliases(eager, run.outputs, run.arguments),
        compare_lists(sample, "argument afterwards", eager.arguments, run.arguments),
        compare_lists(sample, "gradient of argument", after_writes(eager.mutated, eager.gradients),
                      after_writes(eager.mutated, run.gradients), /*gradients=*/true)}) {
    if (!text.empty()) return text;
  }
  return "";
}

std::string check_compiled_refuses(const Sample& sample, const Fn& compiled) {
  try {
    run_with_gradients(sample, compiled);
    return "eager refuses to differentiate, the compiled function does not";
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

std::string check_eager(const Sample& sample) {
  return report(sample, [&]() -> std::string {
    const EagerRun first = run_eager(sample), second = run_eager(sample);
    const std::string text =
        compare_lists(sample, "output of a second run", first.outputs, second.outputs);
    if (!text.empty()) return text;
    if (!sample.differentiable) return check_eager_refuses(sample);
    if (!sample.skip_gradients.empty()) return "";
    return compare_lists(sample, "gradient of a second run",
                         run_eager_with_gradients(sample).gradients,
                         run_eager_with_gradients(sample).gradients);
  });
}

std::string check_metadata(const Sample& sample) {
  return report(
      sample,
      [&]() -> std::string {
        const EagerRun eager = run_eager(sample);
        const Tensors arguments = sample.make_arguments();
        const Graph graph = trace(sample.make_function(), arguments);
        graph.verify();
        const GraphRun run = run_graph(sample, graph, arguments, eager);
        return explain(graph, {compare_nodes(sample, graph, arguments, eager),
                               compare_output_metas(graph, eager),
                               compare_aliases(eager, run.outputs, arguments)});
      },
      sample.reads_values ? Values::Read : Values::Unread);
}

std::string check_values(const Sample& sample) {
  return report(
      sample,
      [&]() -> std::string {
        const EagerRun eager = run_eager(sample);
        const Tensors arguments = sample.make_arguments();
        const Graph graph = trace(sample.make_function(), arguments);
        const GraphRun run = run_graph(sample, graph, arguments, eager);
        return explain(graph, {compare_outputs(sample, eager, run.outputs),
                               compare_lists(sample, "argument afterwards", eager.arguments,
                                             write_back(sample.make_arguments(), run.mutated))});
      },
      sample.reads_values ? Values::Read : Values::Unread);
}

std::string check_gradients(const Sample& sample) {
  return report(
      sample,
      [&]() -> std::string {
        const std::vector<bool> mutated = run_eager(sample).mutated;
        const Tensors traced = make_differentiable_arguments(sample, mutated).arguments;
        if (!sample.differentiable && !sample.reads_values && eager_refuses(sample)) {
          return check_tracer_refuses(sample, traced);
        }
        const JointGraph graph = trace_joint(sample.make_function(), traced);
        const EagerRun eager = run_eager_with_gradients(sample);
        graph.verify();
        const std::string contract =
            explain(graph, {compare_requires_grad(graph, eager), compare_tangents(graph, eager)});
        if (!contract.empty()) return contract;
        const Tensors arguments = sample.make_arguments();
        const GraphRun run = run_graph(sample, graph, arguments, eager);
        return explain(graph, {compare_nodes(sample, graph, sample.make_arguments(), eager),
                               compare_outputs(sample, eager, run.outputs),
                               compare_lists(sample, "gradient of argument", eager.gradients,
                                             run.gradients, /*gradients=*/true),
                               compare_lists(sample, "argument afterwards", eager.arguments,
                                             write_back(sample.make_arguments(), run.mutated))});
      },
      sample.reads_values || sample.gradient_reads_values ? Values::Read : Values::Unread);
}

std::string check_compiled(const Sample& sample) {
  return report(sample, [&]() -> std::string {
    const bool traceable = !sample.reads_values && !sample.gradient_reads_values;
    const bool refused = !sample.differentiable && eager_refuses(sample);
    auto compiled =
        compile(sample.make_function(), {.fullgraph = traceable && !refused, .confirm = 0});
    const Fn call = [&](const Tensors& arguments) { return compiled(arguments); };
    if (refused) return check_compiled_refuses(sample, call);
    for (const char* when : {"observed call, ", "first hit, ", "second hit, "}) {
      const EagerRun eager = run_eager_with_gradients(sample);
      const std::string text = compare_runs(sample, eager, run_with_gradients(sample, call));
      if (!text.empty()) return when + text;
    }
    const CompileStats stats = compiled.stats();
    if (!traceable || (stats.observed_calls == 1 && stats.cache_hits == 2)) return "";
    return "ran from graphs in " + std::to_string(stats.cache_hits) + " of three calls";
  });
}

/// A backward as one graph; where a formula of LibTorch's decides by values, or a write to a view
/// is known by a function only, as in eager.
EagerRun run_captured(const Sample& sample) {
  try {
    compiled_autograd::Enable on({.fullgraph = true});
    return run_eager_with_gradients(sample);
  } catch (const Unsupported& refusal) {
    const std::string& reason = refusal.msg();
    const bool reads_values = reason.find("formula reads values") != std::string::npos ||
                              reason.find("made without values") != std::string::npos;
    const bool is_hidden = reason.find("CopySlices") != std::string::npos &&
                           reason.find("does not say what it holds") != std::string::npos;
    if (!reads_values && !is_hidden) throw;
  }
  compiled_autograd::Enable on;
  return run_eager_with_gradients(sample);
}

std::string check_compiled_autograd(const Sample& sample) {
  return report(sample, [&]() -> std::string {
    if (!sample.differentiable && eager_refuses(sample)) return "";
    Sample exact = sample;
    exact.gradient_rounds.clear();
    for (const char* when : {"captured, ", "found again, "}) {
      const EagerRun eager = run_eager_with_gradients(sample);
      const std::string text = compare_runs(exact, eager, run_captured(sample));
      if (!text.empty()) return when + text;
    }
    return "";
  });
}

}  // namespace ahead::samples
