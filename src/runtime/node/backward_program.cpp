#include "runtime/node/backward_program.h"

#include <algorithm>
#include <atomic>

#include "ahead/errors.h"
#include "runtime/compile_request.h"

namespace ahead::runtime {
namespace {

/// Beyond this many combinations, tangents are copied into the layout of the trace.
constexpr size_t most_kinds = 32;

uint64_t next_id() {
  static std::atomic<uint64_t> next = 0;
  return next++;
}

std::vector<int64_t> key_of(const std::vector<at::Tensor>& tangents,
                            const BackwardProgram::Mask& wanted) {
  std::vector<int64_t> key(wanted.begin(), wanted.end());
  for (const at::Tensor& tangent : tangents) {
    key.push_back(tangent.defined() ? 1 : 0);
    if (tangent.defined())
      key.insert(key.end(), tangent.strides().begin(), tangent.strides().end());
  }
  return key;
}

std::vector<bool> with_size(std::vector<bool> flags, size_t size) {
  flags.resize(size);
  return flags;
}

}  // namespace

BackwardProgram::BackwardProgram(Graph graph, Reach reach, std::vector<bool> donated,
                                 aot::GraphCompiler compiler, Relayout relayout)
    : graph_(std::move(graph)),
      id_(next_id()),
      reach_(std::move(reach)),
      donated_(with_size(std::move(donated), graph_.inputs().size())),
      compiler_(std::move(compiler)),
      relayout_(std::move(relayout)) {
  for (const Graph::Input& input : graph_.inputs()) {
    const bool is_tangent = input.slot.kind == Slot::Kind::Tangent;
    (is_tangent ? tangents_ : saved_).push_back(input.value->meta);
  }
}

BackwardProgram::Part BackwardProgram::compile(const Graph& graph) const {
  Part part;
  for (const Graph::Input& input : graph.inputs()) {
    if (input.slot.kind == Slot::Kind::Tangent) {
      part.tangents.push_back(input.value->meta);
    } else {
      part.needs.push_back(input.value->is_used());
    }
  }
  aot::CompileRequest request = request_for(graph, "CompiledFunction.backward");
  request.donated = donated_;
  part.run = compiler_(request);
  return part;
}

BackwardProgram::Part BackwardProgram::compile(const std::vector<at::Tensor>& tangents,
                                               const Mask& wanted) const {
  Mask defined;
  std::vector<TensorMeta> layouts = tangents_;
  for (size_t i = 0; i < tangents.size(); ++i) {
    defined.push_back(tangents[i].defined());
    if (defined.back()) layouts[i].strides = tangents[i].strides();
  }
  if (special_.size() > most_kinds) return compile(graph_for(defined, wanted));
  try {
    return compile(
        relayout_(without_tangents(graph_, reach_, defined, wanted, /*any_layout=*/true), layouts));
  } catch (const Unsupported&) {
    return compile(graph_for(defined, wanted));
  }
}

Graph BackwardProgram::graph_for(const Mask& defined, const Mask& wanted) const {
  return without_tangents(graph_, reach_, defined, wanted, /*any_layout=*/false);
}

const BackwardProgram::Part& BackwardProgram::complete() {
  std::call_once(compiled_, [this] { complete_ = compile(graph_); });
  return complete_;
}

const BackwardProgram::Part& BackwardProgram::special(const std::vector<at::Tensor>& tangents,
                                                      const Mask& wanted) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<const Part>& known = special_[key_of(tangents, wanted)];
  if (known == nullptr) known = std::make_unique<const Part>(compile(tangents, wanted));
  return *known;
}

/// Whether all defined tangents have the layout that they had in the trace.
bool BackwardProgram::is_as_traced(const std::vector<at::Tensor>& tangents) const {
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (tangents[i].defined() && tangents[i].strides() != tangents_[i].strides) return false;
  }
  return true;
}

const BackwardProgram::Part& BackwardProgram::part(const std::vector<at::Tensor>& tangents,
                                                   const Mask& wanted) {
  const bool all_defined = std::all_of(tangents.begin(), tangents.end(),
                                       [](const at::Tensor& tangent) { return tangent.defined(); });
  const bool all_wanted =
      std::all_of(wanted.begin(), wanted.end(), [](bool is_wanted) { return is_wanted; });
  const bool is_complete = all_defined && all_wanted && is_as_traced(tangents);
  return is_complete ? complete() : special(tangents, wanted);
}

}  // namespace ahead::runtime
