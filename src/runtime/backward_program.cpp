#include "runtime/backward_program.h"

#include <algorithm>

namespace ahead::runtime {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next = 0;
  return next++;
}

}  // namespace

BackwardProgram::BackwardProgram(Graph graph, aot::GraphCompiler compiler)
    : graph_(std::move(graph)), id_(next_id()), compiler_(std::move(compiler)) {
  for (const Graph::Input& input : graph_.inputs()) {
    if (input.slot.kind == Slot::Kind::Tangent) {
      tangents_.push_back(input.value->meta);
    } else {
      ++num_saved_;
    }
  }
}

aot::Executable BackwardProgram::compile(const Graph& graph) const {
  std::vector<TensorMeta> inputs;
  for (const Graph::Input& input : graph.inputs()) inputs.push_back(input.value->meta);
  return compiler_(graph, inputs);
}

const aot::Executable& BackwardProgram::complete() {
  std::call_once(compiled_, [this] { complete_ = compile(graph_); });
  return complete_;
}

const aot::Executable& BackwardProgram::partial(const Mask& defined, const Mask& wanted) {
  std::vector<bool> key(defined.begin(), defined.end());
  key.insert(key.end(), wanted.begin(), wanted.end());
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<const aot::Executable>& known = partial_[key];
  if (known == nullptr) {
    known =
        std::make_unique<const aot::Executable>(compile(without_tangents(graph_, defined, wanted)));
  }
  return *known;
}

std::vector<at::Tensor> BackwardProgram::run(std::vector<at::Tensor>&& args, const Mask& defined,
                                             const Mask& wanted) {
  const auto all = [](const Mask& mask) {
    return std::all_of(mask.begin(), mask.end(), [](bool bit) { return bit; });
  };
  const bool is_complete = all(defined) && all(wanted);
  return (is_complete ? complete() : partial(defined, wanted))(std::move(args));
}

}  // namespace ahead::runtime
