#include "engine/driver.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <chrono>
#include <iostream>
#include <map>
#include <typeinfo>

#include "ahead/errors.h"
#include "ahead/mark.h"
#include "base/private_members.h"
#include "engine/cache.h"
#include "engine/captured_program.h"
#include "engine/gate.h"
#include "engine/walk/backward.h"
#include "observe/recorder/recorder.h"
#include "runtime/backends.h"
#include "runtime/node/compiled_node.h"
#include "tensors/size_marks.h"
#include "trace/tracer.h"

namespace ahead::engine {
namespace {

using torch::autograd::Engine;
using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::variable_list;

thread_local bool running = false;

struct Running {
  Running() { running = true; }
  ~Running() { running = false; }
};

/// LibTorch tells us of a task that it owns and has prepared, but does not want it back.
GraphTask& own(const GraphTask& task) {
  return const_cast<GraphTask&>(task);
}

/// Warnings wait for the end of a backward, and are then given by the thread that started it.
void replay_warnings(GraphTask& task) {
  for (const c10::Warning& warning : take_warnings(task.warning_handler_)) c10::warn(warning);
}

variable_list run_in_eager_engine(const NodePtr& root, const GraphTask& task) {
  Engine::get_default_engine().execute_with_graph_task(own(task).shared_from_this(), root,
                                                       InputBuffer(variable_list()));
  task.future_result_->wait();
  replay_warnings(own(task));
  return task.future_result_->value().toTensorVector();
}

void tell(const Settings& settings, const std::string& reason) {
  Cache::instance().note(reason);
  if (settings.options.verbose) std::clog << "[ahead compiled autograd] " << reason << "\n";
}

/// Why a backward in these surroundings cannot be captured; empty: it can.
std::string refusal_here() {
  if (torch::autograd::AnomalyMode::is_enabled()) return "anomaly mode is on";
  if (c10::InferenceMode::is_enabled()) return "inference mode is on";
  if (c10::impl::dispatch_mode_enabled()) return "a dispatch mode is active";
  return "";
}

bool may_lift(const Settings& settings) {
  return settings.options.dynamic.value_or(true) &&
         runtime::traits_of(settings.options.backend).takes_sizes;
}

/// Visits what nodes of compiled functions say of the sizes for which their programs ran: where
/// these stand among a backward's sizes, and how many they are.
void for_each_program(const Backward& backward, c10::function_ref<void(size_t, size_t)> visit) {
  for (const Step& step : backward.steps()) {
    if (step.num_size_inputs != 0 && typeid(*step.node) == typeid(runtime::CompiledNode))
      visit(step.first_size, step.num_size_inputs);
  }
}

/// Which of a backward's sizes are those of dimensions. Others are strides, and numbers that nodes
/// hold, which are often equal to a dimension by chance.
std::vector<bool> find_dimensions(const Backward& backward) {
  std::vector<bool> are(backward.sizes().size());
  const auto mark = [&](size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) are[first + i] = true;
  };
  for (const Step& step : backward.steps()) {
    for (uint32_t i = 0; i < step.num_places; ++i) {
      const auto& metadata = step.node->input_metadata(i);
      if (!metadata.was_default_constructed())
        mark(backward.sizes_of_place(step.first_place + i), metadata.shape_as_dim_vector().size());
    }
  }
  for (size_t i = 0; i < backward.inputs().size(); ++i) {
    if (const auto first = backward.sizes_of_input(i))
      mark(*first, static_cast<size_t>(backward.inputs()[i].dim()));
  }
  for_each_program(backward, mark);
  return are;
}

/// The sizes of dimensions that are marked as changing, among the tensors that nodes hold, and
/// those for which a program for many sizes ran.
std::vector<int64_t> find_marked(const Backward& backward) {
  std::vector<int64_t> marked;
  for_each_program(backward, [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
      const int64_t size = backward.sizes()[i];
      if (size < -1 || size > 1) marked.push_back(size);
    }
  });
  for (size_t i = 0; i < backward.inputs().size(); ++i) {
    const at::Tensor& input = backward.inputs()[i];
    if (!backward.sizes_of_input(i) || tensors::changing_dims(input) == 0) continue;
    for (const int64_t dim : dynamic_dims(input)) {
      if (input.size(dim) > 1) marked.push_back(input.size(dim));
    }
  }
  return marked;
}

/// Which sizes may change in a program for a backward of which `like` is one with other sizes;
/// null: none was seen.
SizePattern choose_pattern(const Settings& settings, const Backward& backward, Program* like) {
  if (!may_lift(settings)) return SizePattern(backward.sizes());
  if (like != nullptr) return like->widened(backward.sizes(), find_dimensions(backward));
  if (settings.options.dynamic.has_value())
    return SizePattern::all(backward.sizes(), find_dimensions(backward));
  const std::vector<int64_t> marked = find_marked(backward);
  if (marked.empty()) return SizePattern(backward.sizes());
  return SizePattern::multiples_of(marked, backward.sizes(), find_dimensions(backward));
}

/// Why a node runs by itself; null: it does not, or only because of hooks on what it returns.
const char* why_by_itself(const Step& step) {
  if (step.kind == Step::Kind::Eager) return kWhyEager;
  return step.kind == Step::Kind::Called && !step.hooks.has(Hooks::Outputs) ? kWhyCalled : nullptr;
}

/// Says why nodes will run by themselves: each reason once for all nodes of a name.
void tell_nodes_by_themselves(const Settings& settings, const Backward& backward) {
  std::map<std::string, size_t> others;
  std::vector<std::pair<std::string, size_t>> first;
  for (size_t i = 1; i < backward.steps().size(); ++i) {
    const Step& step = backward.steps()[i];
    const char* const why = why_by_itself(step);
    if (why == nullptr) continue;
    const std::string about = step.node->name() + why;
    if (others[about]++ == 0) first.emplace_back(about, i);
  }
  for (const auto& [about, step] : first) {
    const size_t count = others[about];
    tell(settings, about + " (step " + std::to_string(step) +
                       (count == 1 ? ")" : " and " + std::to_string(count - 1) + " more)"));
  }
}

/// The program for a backward. `is_new`: there was none.
Cache::Hit find_program(const Settings& settings, const Backward& backward, bool& is_new) {
  Cache& cache = Cache::instance();
  Cache::Miss miss;
  if (auto hit = cache.find(backward, miss)) return std::move(*hit);
  is_new = true;
  tell(settings, "Cache miss due to " + miss.reason);
  tell_nodes_by_themselves(settings, backward);
  SizePattern sizes = choose_pattern(settings, backward, miss.like.get());
  Cache::Hit made{nullptr, *sizes.match(backward.sizes())};
  made.program = std::make_shared<Program>(
      backward, runtime::find_backend(settings.options.backend), std::move(sizes));
  return cache.add(backward, std::move(made), settings.options.cache_limit);
}

void count_run(const Settings& settings, const RunReport& report, bool is_new,
               double lookup_seconds) {
  Cache::instance().count([&](compiled_autograd::Stats& stats) {
    stats.lookup_seconds += lookup_seconds;
    stats.capture_seconds += report.capture_seconds;
    stats.compiles += report.compiles;
    stats.eager_nodes += report.eager_nodes;
    stats.cuts += report.cuts;
    stats.calls += report.calls;
    const bool is_captured = report.compiles != 0 || is_new;
    if (is_captured) ++stats.captures;
    ++(is_captured || report.met_a_capture ? stats.cache_misses : stats.cache_hits);
  });
  for (const std::string& problem : report.problems) tell(settings, problem);
}

/// For Options::fullgraph.
void check_whole(const Backward& backward) {
  for (size_t i = 1; i < backward.steps().size(); ++i) {
    const Step& step = backward.steps()[i];
    if (step.kind == Step::Kind::Eager) throw_cut(step, i, kWhyEager);
  }
}

/// The gradients; nothing, with a reason, if the eager engine has to find them.
std::optional<variable_list> run_captured(const Settings& settings, const NodePtr& root,
                                          const GraphTask& task, std::string& refusal) {
  at::ThreadLocalStateGuard as_in_engine(task.thread_locals_);
  refusal = refusal_here();
  if (!refusal.empty()) return std::nullopt;
  const auto start = std::chrono::steady_clock::now();
  Backward backward(root, task, settings.backend);
  refusal = backward.refusal();
  if (!refusal.empty()) return std::nullopt;
  if (settings.options.fullgraph) check_whole(backward);
  bool is_new = false;
  const Cache::Hit found = find_program(settings, backward, is_new);
  const std::chrono::duration<double> lookup = std::chrono::steady_clock::now() - start;
  RunReport report;
  report.must_be_whole = settings.options.fullgraph;
  // What user code throws ends the run, but does not undo a capture.
  const auto when_done =
      c10::make_scope_exit([&] { count_run(settings, report, is_new, lookup.count()); });
  return found.program->run(backward, found.sizes, report);
}

/// Callbacks may queue callbacks.
void run_final_callbacks(GraphTask& task) {
  std::unique_lock<std::mutex> lock(task.final_callbacks_lock_);
  for (size_t i = 0; i < task.final_callbacks_.size(); ++i) {
    const std::function<void()> callback = task.final_callbacks_[i];
    lock.unlock();
    callback();
    lock.lock();
  }
}

variable_list refuse(const Settings& settings, const NodePtr& root, const GraphTask& task,
                     const std::string& reason) {
  if (settings.options.fullgraph) {
    throw Unsupported("compiled autograd",
                      "backward: it would run in the eager engine, because " + reason +
                          ". Leave fullgraph off, or run it in a Disable scope.");
  }
  tell(settings, "The eager engine runs this backward, because " + reason);
  Cache::instance().count([](compiled_autograd::Stats& stats) { ++stats.eager_fallbacks; });
  return run_in_eager_engine(root, task);
}

}  // namespace

bool is_running() {
  return running;
}

variable_list run_backward(const NodePtr& root, const GraphTask& task, bool,
                           const torch::autograd::edge_list&) {
  open_gate();
  // Hooks may open scopes.
  const std::shared_ptr<const Settings> settings = current_settings();
  if (settings == nullptr || running || tracing::Tracer::current() != nullptr ||
      observe::Recorder::current() != nullptr) {
    return run_in_eager_engine(root, task);
  }
  std::string refusal;
  std::optional<variable_list> results;
  std::exception_ptr error;
  try {
    const c10::WarningUtils::WarningHandlerGuard delayed(&own(task).warning_handler_);
    const Running scope;
    results = run_captured(*settings, root, task, refusal);
    if (results) run_final_callbacks(own(task));
  } catch (...) {
    error = std::current_exception();
  }
  replay_warnings(own(task));
  if (error) std::rethrow_exception(error);
  return results ? std::move(*results) : refuse(*settings, root, task, refusal);
}

}  // namespace ahead::engine
