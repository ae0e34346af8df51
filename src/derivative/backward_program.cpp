#include "derivative/backward_program.h"

#include <ATen/Context.h>

#include <algorithm>
#include <string>

#include "ahead/errors.h"
#include "base/log.h"
#include "derivative/sparse_gradients.h"
#include "derivative/tangent_layouts.h"
#include "ir/sizes/graph_numbers.h"
#include "ops/facts/node_facts.h"
#include "runtime/backends.h"
#include "runtime/compile_request.h"

namespace ahead::compiling {
namespace {

/// So many combinations are kept. Beyond, tangents are copied into the layout of the trace, and the
/// backward for those that are undefined, or not wanted, is made anew each time.
constexpr size_t most_variants = 32;

/// Whether deterministic algorithms are wanted now: kernels and backends choose by that.
int64_t deterministic_mode() {
  const at::Context& context = at::globalContext();
  if (!context.deterministicAlgorithms()) return 0;
  return context.deterministicAlgorithmsWarnOnly() ? 1 : 2;
}

/// `strides_of`: those of the tangent with this number, if it is defined.
template <class StridesOf>
std::vector<int64_t> key_of(const BackwardProgram::Mask& defined,
                            const BackwardProgram::Mask& wanted, StridesOf&& strides_of) {
  std::vector<int64_t> key(wanted.begin(), wanted.end());
  key.push_back(deterministic_mode());
  for (size_t i = 0; i < defined.size(); ++i) {
    key.push_back(defined[i] ? 1 : 0);
    if (!defined[i]) continue;
    const at::IntArrayRef strides = strides_of(i);
    key.insert(key.end(), strides.begin(), strides.end());
  }
  return key;
}

BackwardProgram::Mask are_defined(const std::vector<at::Tensor>& tangents) {
  BackwardProgram::Mask defined;
  for (const at::Tensor& tangent : tangents) defined.push_back(tangent.defined());
  return defined;
}

bool all(const BackwardProgram::Mask& mask) {
  return std::all_of(mask.begin(), mask.end(), [](bool is_set) { return is_set; });
}

std::vector<bool> with_size(std::vector<bool> flags, size_t size) {
  flags.resize(size);
  return flags;
}

}  // namespace

BackwardProgram::BackwardProgram(Graph graph, Reach reach, const std::vector<size_t>& edges,
                                 std::vector<bool> donated, aot::GraphCompiler compiler)
    : BackwardVariants(graph, find_order(graph, edges, donated)),
      graph_(std::move(graph)),
      reach_(std::move(reach)),
      edges_(edges),
      donated_(with_size(std::move(donated), graph_.inputs().size())),
      compiler_(std::move(compiler)),
      deterministic_(deterministic_mode()) {}

BackwardProgram::PartPtr BackwardProgram::compile(const Graph& graph,
                                                  const aot::GraphCompiler& compiler) const {
  auto part = std::make_shared<Part>();
  for (const Node& node : graph.nodes()) {
    if (!ops::is_backward_write(node)) continue;
    part->writes.resize(graph.inputs().size());
    part->writes[node.args()[0].value()->index()] = true;
  }
  for (const Graph::Input& input : graph.inputs()) {
    if (input.slot.kind == Slot::Kind::Tangent) {
      part->tangents.push_back(input.value->meta);
    } else if (input.slot.kind != Slot::Kind::Sizes) {
      part->needs.push_back(input.value->is_used());
    }
  }
  const auto compile_dense = [&](const Graph& dense) {
    aot::CompileRequest request =
        runtime::request_for(dense, std::string(runtime::function_name) + ".backward");
    request.donated = donated_;
    return compiler(request);
  };
  if (SparseGradients::are_in(graph)) {
    const SparseGradients cut(graph);
    part->run = cut.behind(compile_dense(cut.dense()));
  } else {
    part->run = compile_dense(graph);
  }
  return part;
}

BackwardProgram::PartPtr BackwardProgram::compile(const std::vector<at::Tensor>& tangents,
                                                  const Mask& wanted) const {
  const Mask defined = are_defined(tangents);
  std::vector<TensorMeta> layouts = this->tangents();
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (defined[i]) layouts[i].strides = tangents[i].strides();
  }
  try {
    return compile(
        with_tangent_layouts(without_tangents(graph_, reach_, defined, wanted, /*any_layout=*/true),
                             layouts),
        compiler_);
  } catch (const Unsupported&) {
    return compile(graph_for(defined, wanted, Layouts::AsTraced), compiler_);
  }
}

Graph BackwardProgram::graph_for(const Mask& defined, const Mask& wanted, Layouts layouts) const {
  const bool is_any = layouts == Layouts::Any;
  Graph graph = without_tangents(graph_, reach_, defined, wanted, is_any);
  return is_any ? for_any_tangent_layout(graph) : graph;
}

bool BackwardProgram::lies_as_traced(const Mask& defined, const Mask& wanted) const {
  const auto hash_of = [&](bool any_layout) {
    return without_tangents(graph_, reach_, defined, wanted, any_layout).hash();
  };
  return all(defined) || hash_of(false) == hash_of(true);
}

BackwardProgram::PartPtr BackwardProgram::complete() {
  PartPtr known = complete_.load();
  if (known != nullptr) return known;
  PartPtr made = compile(graph_, compiler_);
  return complete_.compare_exchange_strong(known, made) ? made : known;
}

BackwardProgram::PartPtr BackwardProgram::find(const Key& key) const {
  const auto known = special_.find(key);
  return known == special_.end() ? nullptr : known->second;
}

BackwardProgram::PartPtr BackwardProgram::special(const std::vector<at::Tensor>& tangents,
                                                  const Mask& wanted) {
  const Key key =
      key_of(are_defined(tangents), wanted, [&](size_t i) { return tangents[i].strides(); });
  bool is_full = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (PartPtr known = find(key)) return known;
    is_full = special_.size() >= most_variants;
  }
  if (is_full) return rare(tangents, wanted);
  PartPtr made = compile(tangents, wanted);
  std::lock_guard<std::mutex> lock(mutex_);
  return special_.emplace(key, std::move(made)).first->second;
}

/// One more combination than are kept: as it lay in the trace, and if there is none such either,
/// made for this once. A backend may take its time, the interpreter does not.
BackwardProgram::PartPtr BackwardProgram::rare(const std::vector<at::Tensor>& tangents,
                                               const Mask& wanted) {
  const Mask defined = are_defined(tangents);
  if (all(defined) && all(wanted) && deterministic_mode() == deterministic_) return complete();
  {
    const Key as_traced = key_of(
        defined, wanted, [&](size_t i) -> at::IntArrayRef { return this->tangents()[i].strides; });
    std::lock_guard<std::mutex> lock(mutex_);
    if (PartPtr known = find(as_traced)) return known;
  }
  warn_once("[backward] more than " + std::to_string(most_variants) +
            " combinations of results that are differentiated and of gradients that are asked "
            "for: backwards for others are made each time that they are run. Return fewer results "
            "from a compiled function, or differentiate them together.");
  return compile(graph_for(defined, wanted, Layouts::AsTraced),
                 runtime::find_backend("interpreter"));
}

size_t BackwardProgram::num_variants() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return special_.size() + (complete_.load() == nullptr ? 0 : 1);
}

bool BackwardProgram::is_complete_for(const std::vector<at::Tensor>& tangents, const Mask& wanted,
                                      const std::vector<TensorMeta>& layouts) const {
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined() || tangents[i].strides() != layouts[i].strides) return false;
  }
  return all(wanted) && deterministic_mode() == deterministic_;
}

BackwardProgram::PartPtr BackwardProgram::variant(const std::vector<at::Tensor>& tangents,
                                                  const Mask& wanted) {
  return is_complete_for(tangents, wanted, this->tangents()) ? complete()
                                                             : special(tangents, wanted);
}

std::shared_ptr<BackwardProgram> BackwardProgram::at(const std::vector<int64_t>& sizes) const {
  return std::make_shared<BackwardProgram>(at_sizes(graph_, sizes), reach_, edges_, donated_,
                                           compiler_);
}

}  // namespace ahead::compiling
