#include "engine/captured_program.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>

#include "ahead/errors.h"
#include "engine/part/not_traceable.h"
#include "engine/part/part_bounds.h"
#include "engine/part/part_tracer.h"
#include "engine/walk/chains.h"
#include "engine/walk/leaf.h"
#include "interpreter/plan.h"
#include "runtime/compile_request.h"

namespace ahead::engine {
namespace {

/// Variants of one part beyond which its steps run as in eager.
constexpr int64_t most_variants = 8;

/// For so many sizes it is tried to trace steps that could not be traced for others.
constexpr size_t most_retries = 4;

std::vector<std::optional<TensorMeta>> describe_gradients(const std::vector<at::Tensor>& all) {
  std::vector<std::optional<TensorMeta>> metas;
  for (const at::Tensor& one : all)
    metas.push_back(one.defined() ? std::optional(TensorMeta::of(one)) : std::nullopt);
  return metas;
}

/// A call at a step that gets the gradients that wait for it.
Call describe_call(const char* what, size_t index, const Step& step, const Gradients& gradients) {
  Call call{what + step.node->name(), index, {}, {}, {}, {}, false, {}};
  for (uint32_t i = 0; i < step.num_places; ++i) call.places.push_back(step.first_place + i);
  call.gradients = describe_gradients(gradients.copy_inputs(step));
  return call;
}

/// Calls the graph's operators one by one above autograd, as eager does under create_graph: no
/// backend but the interpreter leaves a history behind.
aot::Executable differentiable(const Graph& graph) {
  using Plan = Interpreter::Plan;
  auto plan = std::make_shared<const Plan>(graph, Plan::Views::OneByOne);
  return [plan = std::move(plan)](std::vector<at::Tensor>&& arguments) {
    return plan->replay(std::move(arguments));
  };
}

std::string describe(const Backward& backward, size_t step, const std::string& reason,
                     const char* how = " runs as in eager: ") {
  return backward.steps()[step].node->name() + " (step " + std::to_string(step) + ")" + how +
         reason;
}

/// Says of a call that it was given what a step returned, and what it made of it.
void describe_results(Call& call, const std::vector<at::Tensor>& results, const Step& step,
                      const Backward& backward) {
  call.takes_outputs = true;
  call.results = describe_gradients(results);
  const auto first = backward.targets().begin() + step.first_target;
  call.targets.assign(first, first + step.num_targets);
}

}  // namespace

void throw_cut(const Step& step, size_t index, const std::string& why) {
  throw Unsupported("compiled autograd",
                    "backward: it would be cut at " + step.node->name() + " (step " +
                        std::to_string(index) + "), which" + why +
                        ". Leave fullgraph off, or run it in a Disable scope.");
}

Program::Program(const Backward& backward, aot::GraphCompiler compiler, SizePattern sizes)
    : compiler_(std::move(compiler)) {
  Known known{first_kinds(backward), {}, std::move(sizes), {}, {}, {}, {}, false};
  known_.store(std::make_shared<const Known>(std::move(known)));
}

std::optional<std::vector<int64_t>> Program::match(const std::vector<int64_t>& sizes) const {
  const std::shared_ptr<const Known> known = known_.load();
  auto values = known->sizes.match(sizes);
  const bool is_known = !values || known->guards.empty() ||
                        std::any_of(known->guards.begin(), known->guards.end(),
                                    [&](const auto& guards) { return guards->hold(*values); });
  return is_known ? std::move(values) : std::nullopt;
}

SizePattern Program::widened(const std::vector<int64_t>& sizes,
                             const std::vector<bool>& are_dimensions) const {
  return known_.load()->sizes.widened(sizes, are_dimensions);
}

size_t Program::count_changed(const std::vector<int64_t>& sizes) const {
  const std::shared_ptr<const Known> known = known_.load();
  size_t changed = 0;
  for (size_t i = 0; i < sizes.size(); ++i) changed += sizes[i] != known->sizes.sizes()[i];
  return changed;
}

std::vector<std::shared_ptr<const Graph>> Program::graphs() const {
  std::vector<std::shared_ptr<const Graph>> graphs;
  const auto known = known_.load();
  for (const Stretch& stretch : known->stretches)
    graphs.push_back(std::make_shared<const Graph>(stretch.graph()));
  for (const PartPtr& part : known->parts) {
    const bool is_shown = std::any_of(known->stretches.begin(), known->stretches.end(),
                                      [&](const Stretch& stretch) { return stretch.has(*part); });
    if (!is_shown) graphs.push_back(part->graph);
  }
  return graphs;
}

std::vector<at::Tensor> Program::run(Backward& backward, const std::vector<int64_t>& sizes,
                                     RunReport& report) {
  Gradients gradients(backward);
  retry_for_other_sizes(backward);
  const std::shared_ptr<const Known> known = known_.load();
  const bool is_watched = known->has_new_parts || known->parts.empty();
  std::vector<Stretch> stretches(1);
  const Run run{backward, gradients, sizes, report, is_watched ? &stretches : nullptr};
  bool was_eager = false;
  for (size_t i = 0; i < backward.steps().size();) {
    const Step& step = backward.steps()[i];
    if (is_for_graphs(step.kind) && step.hooks.has(Hooks::Before)) call_before(step, i, run);
    if (step.num_hooked != 0) unpack(i, run);
    const auto [part, end] = find_next(i, run);
    if (part != nullptr && !has_new_hooks(*part, backward) &&
        is_unwritten(*part, gradients, backward)) {
      run_part(part, run);
      was_eager = false;
    } else {
      run_eagerly(i, end, run, was_eager);
    }
    i = end;
  }
  if (is_watched) add_stretches(std::move(stretches));
  return std::move(gradients.results());
}

/// Leaves and results that nothing traced leads to are no cut: there is nothing to be traced.
void Program::run_eagerly(size_t begin, size_t end, const Run& run, bool& was_eager) const {
  for (size_t i = begin; i < end; ++i) {
    const Step& step = run.backward.steps()[i];
    const bool is_called =
        step.kind == Step::Kind::Called ||
        (step.kind == Step::Kind::Traced && known_.load()->kinds[i] == Step::Kind::Called);
    if (is_called) {
      call_node(step, i, run);
      continue;
    }
    const bool is_cut =
        i != 0 && (step.kind == Step::Kind::Traced || step.kind == Step::Kind::Eager);
    if (is_cut && run.report.must_be_whole && !run.report.met_a_capture)
      throw_cut(step, i, why_eager(i));
    run.report.eager_nodes += is_cut;
    if (is_cut && !std::exchange(was_eager, true)) ++run.report.cuts;
    if (is_cut && run.stretches != nullptr) run.stretches->emplace_back();
    run.gradients.run_eagerly(step);
  }
  run.backward.let_go(begin, end);
}

/// As far as it is known.
std::string Program::why_eager(size_t step) const {
  const std::shared_ptr<const Known> known = known_.load();
  const auto found = known->problems.find(step);
  return found == known->problems.end() ? " runs as in eager"
                                        : " runs as in eager: " + found->second;
}

void Program::call_before(const Step& step, size_t index, const Run& run) {
  ++run.report.calls;
  if (run.stretches == nullptr) return run.gradients.call_before(step);
  Call call = describe_call("hooks before ", index, step, run.gradients);
  run.gradients.call_before(step);
  call.results = describe_gradients(run.gradients.copy_inputs(step));
  call.targets.assign(call.places.begin(), call.places.end());
  run.stretches->back().items.push_back({nullptr, std::move(call)});
}

/// Runs a node that is user code as a whole.
void Program::call_node(const Step& step, size_t index, const Run& run) {
  ++run.report.calls;
  if (run.stretches == nullptr) return run.gradients.run_eagerly(step);
  Call call = describe_call("", index, step, run.gradients);
  torch::autograd::variable_list outputs = run.gradients.call(step);
  describe_results(call, outputs, step, run.backward);
  run.gradients.pass_on(step, std::move(outputs));
  run.stretches->back().items.push_back({nullptr, std::move(call)});
}

/// Lets hooks unpack what the node of a step saved, and fetches what was made again with that for
/// steps that can be in the same part. Where that fails, the part ends: the problem is that of the
/// step, when it is reached.
void Program::unpack(size_t begin, const Run& run) const {
  const std::vector<Step>& steps = run.backward.steps();
  Call call{"", begin, {}, {}, {}, {}, false, {}};
  const auto unpack_for = [&](const Step& step) {
    // It was fetched for a part that ended before this step.
    if (!run.gradients.is_unpacked(step)) run.gradients.unpack(step);
    for (size_t i = step.first_hooked; i < step.first_hooked + step.num_hooked; ++i) {
      if (run.stretches == nullptr || !run.gradients.unpacked(i).defined()) continue;
      call.hooked.push_back(i);
      call.results.push_back(TensorMeta::of(run.gradients.unpacked(i)));
    }
  };
  ++run.report.calls;
  unpack_for(steps[begin]);
  const size_t end = end_of_part(known_.load()->kinds, run.backward, begin);
  try {
    for (size_t i = begin + 1; i < end; ++i)
      if (steps[i].num_hooked != 0) unpack_for(steps[i]);
  } catch (const std::exception&) {
  }
  if (run.stretches == nullptr) return;
  call.what = "hooks that unpack for " + steps[begin].node->name();
  run.stretches->back().items.push_back({nullptr, std::move(call)});
}

/// Keeps what ran as one graph, unless it is known, or somebody else is about to change what is.
void Program::add_stretches(std::vector<Stretch>&& stretches) {
  if (known_.load()->parts.empty()) return;
  if (is_capturing_.exchange(true)) return;
  const auto when_done = c10::make_scope_exit([this] { is_capturing_ = false; });
  Known known = *known_.load();
  for (Stretch& stretch : stretches) {
    const bool is_known =
        std::find(known.stretches.begin(), known.stretches.end(), stretch) != known.stretches.end();
    if (stretch.has_calls() && !is_known) known.stretches.push_back(std::move(stretch));
  }
  known.has_new_parts = false;
  known_.store(std::make_shared<const Known>(std::move(known)));
}

/// What could not be traced for some sizes may be for others.
void Program::retry_for_other_sizes(const Backward& backward) {
  const std::shared_ptr<const Known> known = known_.load();
  const auto& failed_at = known->failed_at;
  if (failed_at.empty() || failed_at.size() >= most_retries) return;
  if (std::find(failed_at.begin(), failed_at.end(), backward.sizes()) != failed_at.end()) return;
  if (is_capturing_.exchange(true)) return;
  const auto when_done = c10::make_scope_exit([this] { is_capturing_ = false; });
  Known renewed = *known_.load();
  renewed.kinds = first_kinds(backward);
  known_.store(std::make_shared<const Known>(std::move(renewed)));
}

Program::Next Program::find_next(size_t begin, const Run& run) {
  const std::shared_ptr<const Known> known = known_.load();
  const std::vector<Step>& steps = run.backward.steps();
  if (!begins_part(known->kinds, steps, begin)) return {nullptr, begin + 1};
  PartPtr part = find(*known, begin, run);
  if (part == nullptr) {
    if (is_capturing_.exchange(true)) {
      run.report.met_a_capture = true;
      return {nullptr, end_of_part(known->kinds, run.backward, begin)};
    }
    const auto when_done = c10::make_scope_exit([this] { is_capturing_ = false; });
    part = capture(begin, run);
  }
  return {part, part == nullptr ? begin + 1 : part->end};
}

Program::PartPtr Program::find(const Known& known, size_t begin, const Run& run) {
  for (const PartPtr& part : known.parts) {
    if (part->begin == begin && is_for(*part, run.gradients, run.backward, run.sizes)) return part;
  }
  return nullptr;
}

/// The part for what waits, which is known afterwards, and which nodes are left to themselves.
Program::PartPtr Program::capture(size_t begin, const Run& run) {
  Known known = *known_.load();
  if (PartPtr part = find(known, begin, run)) return part;
  PartPtr part = make_part(known, begin, run);
  known_.store(std::make_shared<const Known>(std::move(known)));
  return part;
}

Program::PartPtr Program::make_part(Known& known, size_t begin, const Run& run) const {
  const auto is_variant = [&](const auto& part) { return part->begin == begin; };
  if (std::count_if(known.parts.begin(), known.parts.end(), is_variant) >= most_variants)
    return nullptr;
  while (is_for_graphs(known.kinds[begin])) {
    const size_t end = end_of_unpacked(begin, end_of_part(known.kinds, run.backward, begin),
                                       run.backward, run.gradients);
    if (!are_traceable(run.backward, begin, end, run.gradients)) return nullptr;
    try {
      return add(known, begin, end, run);
    } catch (const NotTraceable& problem) {
      const size_t culprit =
          problem.step < end ? problem.step : find_culprit(known, begin, end, run);
      if (problem.is_user_code) {
        run.report.problems.push_back(
            describe(run.backward, culprit, problem.what(), " is called between graphs: "));
        known.kinds[culprit] = Step::Kind::Called;
        leave_chains_at(culprit, run.backward, known.kinds);
        continue;
      }
      run.report.problems.push_back(describe(run.backward, culprit, problem.what()));
      if (run.report.must_be_whole)
        throw_cut(run.backward.steps()[culprit], culprit,
                  std::string(" runs as in eager: ") + problem.what());
      known.kinds[culprit] = Step::Kind::Eager;
      known.problems[culprit] = problem.what();
      leave_chains_at(culprit, run.backward, known.kinds);
      if (std::find(known.failed_at.begin(), known.failed_at.end(), run.backward.sizes()) ==
          known.failed_at.end())
        known.failed_at.push_back(run.backward.sizes());
    }
  }
  return nullptr;
}

/// The step with which tracing from `begin` on fails, where the problem is one of the whole.
size_t Program::find_culprit(const Known& known, size_t begin, size_t end, const Run& run) {
  size_t good = begin, bad = end;  // how far it goes, and does not
  while (good + 1 < bad) {
    const size_t middle = good + (bad - good) / 2;
    try {
      trace_part(run.backward, known.kinds, begin, middle, run.gradients);
      good = middle;
    } catch (const std::exception&) {
      bad = middle;
    }
  }
  return bad - 1;
}

Program::PartPtr Program::add(Known& known, size_t begin, size_t end, const Run& run) const {
  const auto start = std::chrono::steady_clock::now();
  std::string problem;
  std::optional<Part> part = lift(known, begin, end, run, problem);
  if (!part) {
    // A step that cannot be traced for fixed sizes either says nothing about the other ones.
    part = trace_part(run.backward, known.kinds, begin, end, run.gradients);
    if (!problem.empty()) give_up_lifting(known, run, problem);
    if (!run.sizes.empty()) part->fixed_sizes = run.backward.sizes();
  }
  compile(*part);
  for (const Part::Accumulation& accumulation : part->accumulations) {
    if (!accumulation.is_deferred()) continue;
    run.report.problems.push_back(describe(run.backward, accumulation.step, accumulation.reason));
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  run.report.capture_seconds += taken.count();
  ++run.report.compiles;
  if (part->guards != nullptr) known.guards.push_back(part->guards);
  known.parts.push_back(std::make_shared<const Part>(std::move(*part)));
  known.has_new_parts = true;
  return known.parts.back();
}

/// The part with a graph for changing sizes, if there are any and if it can be had. `problem` says
/// why it cannot.
std::optional<Part> Program::lift(Known& known, size_t begin, size_t end, const Run& run,
                                  std::string& problem) {
  if (run.sizes.empty() || known.sizes.is_fixed()) return std::nullopt;
  try {
    Part part = trace_lifted_part(run.backward, known.kinds, begin, end, run.gradients,
                                  {known.sizes, run.sizes});
    const std::string& pinned = part.guards->pinned();
    if (part.guards->is_of_use(known.sizes.before())) {
      if (!pinned.empty())
        run.report.problems.push_back("Some sizes have graphs of their own: " + pinned);
      return part;
    }
    problem = pinned;
  } catch (const std::exception& error) {
    problem = error.what();
    problem.resize(std::min(problem.size(), problem.find('\n')));
  }
  return std::nullopt;
}

/// From now on the program is for these sizes only.
void Program::give_up_lifting(Known& known, const Run& run, const std::string& reason) {
  run.report.problems.push_back("Sizes that change have graphs of their own: " + reason);
  known.sizes = known.sizes.given_up(run.backward.sizes());
  known.guards.clear();
}

void Program::compile(Part& part) const {
  part.run = part.with_history ? differentiable(*part.graph)
                               : compiler_(runtime::request_for(*part.graph, "CompiledAutograd"));
}

void Program::run_part(const PartPtr& which, const Run& run) {
  const Part& part = *which;
  Backward& backward = run.backward;
  const Step& last = backward.steps()[part.end - 1];
  const bool has_outputs = last.kind == Step::Kind::Traced && last.hooks.has(Hooks::Outputs);
  torch::autograd::variable_list inputs, node_outputs;
  if (has_outputs) {
    inputs = run.gradients.copy_inputs(last);
    node_outputs.resize(last.num_targets);
  }
  if (run.stretches != nullptr) run.stretches->back().items.push_back({which, std::nullopt});
  if (!backward.task().keep_graph_) {
    for (size_t i = part.begin; i < part.end; ++i) backward.steps()[i].node->release_variables();
  }
  std::vector<at::Tensor> arguments = take_arguments(part, run.gradients, backward, run.sizes);
  backward.let_go(part.begin, part.end);
  std::vector<at::Tensor> outputs;
  {
    const Gradients::Current current(run.gradients, part.adds_to);
    outputs = part.run(std::move(arguments));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Part::Destination& destination = part.destinations[i];
    if (destination.kind == Part::Destination::Kind::Output) {
      node_outputs[destination.index] = std::move(outputs[i]);
    } else {
      put_away(destination, std::move(outputs[i]), run);
    }
  }
  for (const Part::Accumulation& accumulation : part.accumulations) {
    if (accumulation.is_deferred()) run.gradients.run_eagerly(backward.steps()[accumulation.step]);
  }
  if (last.hooks.has(Hooks::After) || has_outputs)
    call_after(part, run, std::move(node_outputs), inputs);
}

/// Calls the hooks behind the last step of a part. A leaf's own node, to which the part left it,
/// has called them itself.
void Program::call_after(const Part& part, const Run& run, torch::autograd::variable_list&& outputs,
                         const torch::autograd::variable_list& inputs) {
  const size_t index = part.end - 1;
  const Step& last = run.backward.steps()[index];
  const auto added = std::find_if(part.accumulations.begin(), part.accumulations.end(),
                                  [&](const auto& one) { return one.step == index; });
  const bool is_added = added != part.accumulations.end();
  if (is_added && added->is_deferred()) return;
  ++run.report.calls;
  Call call{"", index, {}, {}, {}, {}, false, {}};
  if (run.stretches != nullptr) call.what = "hooks after " + last.node->name();
  if (last.kind == Step::Kind::Accumulate && !is_added) {
    (*last.node)({at::Tensor()});  // no gradient came; LibTorch calls the hooks all the same
  } else if (last.kind == Step::Kind::Accumulate) {
    (*last.node->tensor_post_acc_grad_hooks())(leaf_of(last));
  } else if (last.kind == Step::Kind::Traced) {
    outputs = Gradients::call_after(last, std::move(outputs), inputs);
    if (run.stretches != nullptr) describe_results(call, outputs, last, run.backward);
    run.gradients.pass_on(last, std::move(outputs));
  }
  if (run.stretches != nullptr) run.stretches->back().items.push_back({nullptr, std::move(call)});
}

void Program::put_away(const Part::Destination& destination, at::Tensor output, const Run& run) {
  switch (destination.kind) {
    case Part::Destination::Kind::Place:
      run.gradients.at(destination.index) = std::move(output);
      return;
    case Part::Destination::Kind::Output:
      return;
    case Part::Destination::Kind::Result:
      run.gradients.results()[destination.index] = std::move(output);
      return;
    case Part::Destination::Kind::NewGrad:
      set_grad(run.backward.steps()[destination.index], std::move(output));
      return;
    case Part::Destination::Kind::ReplacedGrad:
      leaf_of(run.backward.steps()[destination.index]).mutable_grad() = std::move(output);
      return;
  }
}

}  // namespace ahead::engine
