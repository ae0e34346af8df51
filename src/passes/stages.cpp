#include "passes/stages.h"

#include <algorithm>

#include "ahead/errors.h"
#include "passes/random_calls.h"
#include "passes/random_states.h"

namespace ahead::passes {
namespace {

/// Stages that can be left out, though they are no passes over one graph.
constexpr std::string_view other_stages[] = {
    "decompose",   "static_saved_layout", "forget_unread_operands",
    "name_states", "choose_layouts",      "recompute_inside"};

}  // namespace

bool Stages::is_skipped(std::string_view stage) const {
  return std::find(skipped_.begin(), skipped_.end(), stage) != skipped_.end();
}

void Stages::keep(std::string name, double seconds, const Graph& graph) {
  if (keep_ == Keep::Nothing) return;
  graph.verify();
  Program program{std::move(name), seconds, std::make_shared<const Graph>(graph)};
  std::lock_guard<std::mutex> lock(mutex_);
  // Several threads may have made the same backward at once, of which one is used.
  const bool is_known = std::any_of(programs_.begin(), programs_.end(), [&](const Program& known) {
    return known.name == program.name && known.graph->hash() == program.graph->hash();
  });
  if (!is_known) programs_.push_back(std::move(program));
}

void Stages::keep_reported(std::vector<Program> reported) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Program& program : reported) programs_.push_back(std::move(program));
}

void Stages::optimise(Graph& graph, std::string_view part) {
  for (const Pass& pass : all()) rewrite(pass.name, part, graph, pass.run);
}

aot::Executable Stages::compile(const aot::GraphCompiler& compiler,
                                const aot::CompileRequest& request, std::string name) {
  if (random_ == Random::FromGenerators) return compile_as_is(compiler, request, std::move(name));
  Graph graph(request.graph);
  if (functionalize_random(graph) == 0) return compile_as_is(compiler, request, std::move(name));
  aot::CompileRequest functional{
      graph, request.inputs, request.donated, request.static_inputs, request.target, request.name};
  for (size_t i = functional.inputs.size(); i < graph.inputs().size(); ++i)
    functional.inputs.push_back(graph.inputs()[i].value->meta);
  if (!functional.donated.empty()) functional.donated.resize(graph.inputs().size());
  if (!functional.static_inputs.empty()) functional.static_inputs.resize(graph.inputs().size());
  return with_random_states(compile_as_is(compiler, functional, std::move(name)), graph);
}

aot::Executable Stages::compile_as_is(const aot::GraphCompiler& compiler,
                                      const aot::CompileRequest& request, std::string name) {
  aot::CompileRequest reporting(request);
  std::vector<Program> reported;
  if (keep_ != Keep::Nothing) {
    reporting.report = [&](const std::string& stage, std::string text) {
      auto graph = std::make_shared<const Graph>(request.graph);
      reported.push_back({stage + "." + name, 0, std::move(graph), std::move(text)});
    };
  }
  auto [executable, seconds] = run([&] { return compiler(reporting); });
  keep(name, seconds, request.graph);
  keep_reported(std::move(reported));
  return std::move(executable);
}

aot::GraphCompiler Stages::optimising(aot::GraphCompiler compiler, std::string part) {
  return [stages = shared_from_this(), compiler = std::move(compiler),
          part = std::move(part)](const aot::CompileRequest& request) {
    Graph graph(request.graph);
    stages->optimise(graph, part);
    return stages->compile(compiler,
                           {graph, request.inputs, request.donated, request.static_inputs,
                            request.target, request.name},
                           "backend" + part);
  };
}

std::vector<Program> Stages::programs() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return programs_;
}

void check_skippable(const std::vector<std::string>& names) {
  std::vector<std::string_view> known(std::begin(other_stages), std::end(other_stages));
  for (const Pass& pass : all()) known.push_back(pass.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string list;
    for (const std::string_view other : known) list.append(list.empty() ? "" : ", ").append(other);
    throw UserError("compile", "Options::skip_passes: \"" + name +
                                   "\": there is no such pass. Use one of " + list + ".");
  }
}

}  // namespace ahead::passes
