#include "native/backend.h"

#include <unordered_map>

#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "native/build/kernel_library.h"
#include "native/build/target.h"
#include "native/fuse/fuse.h"
#include "native/launch/by_sizes.h"
#include "native/launch/kernel_call.h"
#include "native/lower/lower.h"
#include "native/print/print_kernel.h"
#include "native/products/choose_products.h"
#include "native/products/merge_products.h"

namespace ahead::native {
namespace {

/// The kernel of a sub-graph; none if its loops, which were found one operator after the other, are
/// not found again when all are looked at together.
std::optional<Kernel> lowered(const Graph& graph) {
  try {
    return lower(graph);
  } catch (const InternalError&) {
    return std::nullopt;
  }
}

void count(const std::vector<KernelOrigin>& origins, aot::KernelCounts& counts) {
  for (const KernelOrigin origin : origins) {
    ++(origin == KernelOrigin::Nowhere ? counts.failed : counts.kernels);
    counts.compiled += origin == KernelOrigin::Compiler;
    counts.from_cache += origin == KernelOrigin::Cache;
  }
}

/// The kernels of all sub-graphs of a graph, by sub-graph.
std::unordered_map<const Graph*, std::shared_ptr<const KernelCall>> kernels_of(
    const Graph& graph, const aot::CompileRequest& request) {
  struct Group {
    const Graph* graph;
    Kernel kernel;
    PrintedKernel printed;
  };
  std::vector<Group> groups;
  std::vector<KernelSource> sources;
  const int vector_bytes = host_target().vector_bytes;
  for (const Node& node : graph.nodes()) {
    if (node.op().in_dispatcher()) continue;
    const Graph* sub_graph = node.args()[0].graph().get();
    std::optional<Kernel> kernel = lowered(*sub_graph);
    if (!kernel) {
      if (request.kernel_counts) ++request.kernel_counts->failed;
      continue;
    }
    PrintedKernel printed = print_kernel(*kernel, vector_bytes);
    sources.push_back({printed.name, printed.text});
    groups.push_back({sub_graph, std::move(*kernel), std::move(printed)});
  }
  if (request.report) {
    std::string text;
    for (const Group& group : groups) text += group.kernel.str() + "\n" + group.printed.text + "\n";
    request.report("kernels", std::move(text));
  }
  std::unordered_map<const Graph*, std::shared_ptr<const KernelCall>> kernels;
  std::vector<KernelOrigin> origins;
  const std::vector<KernelAddress> addresses = build_kernels(sources, &origins);
  if (request.kernel_counts) count(origins, *request.kernel_counts);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (addresses[i] == nullptr) continue;
    auto& [sub_graph, kernel, printed] = groups[i];
    kernels.emplace(sub_graph,
                    std::make_shared<const KernelCall>(*sub_graph, std::move(kernel),
                                                       std::move(printed), addresses[i]));
  }
  return kernels;
}

std::string describe(const FusedGraph& fused) {
  std::string text;
  for (const std::string& decision : fused.decisions) text += "# " + decision + "\n";
  return text + fused.graph.str();
}

}  // namespace

aot::Executable compile(const aot::CompileRequest& request) {
  if (request.graph.find_input({Slot::Kind::Sizes, 0}) >= 0) {
    return by_sizes(request.graph,
                    [name = request.name, counts = request.kernel_counts](const Graph& graph) {
                      aot::CompileRequest fixed{graph, {}};
                      fixed.name = name;
                      fixed.kernel_counts = counts;
                      return compile(fixed);
                    });
  }
  Graph graph(request.graph);
  merge_products(graph);
  FusedGraph fused = fuse(graph);
  choose_products(fused.graph, fastest_multiplier());
  if (request.report) request.report("fused", describe(fused));
  const auto kernels = kernels_of(fused.graph, request);
  const aot::GraphCompiler call_kernel = [&](const aot::CompileRequest& group) -> aot::Executable {
    const auto found = kernels.find(&group.graph);
    if (found != kernels.end()) {
      return [kernel = found->second](std::vector<at::Tensor>&& args) {
        return (*kernel)(std::move(args));
      };
    }
    auto interpreter = std::make_shared<const Interpreter>(group.graph);
    return
        [interpreter](std::vector<at::Tensor>&& args) { return (*interpreter)(std::move(args)); };
  };
  auto interpreter = std::make_shared<const Interpreter>(fused.graph, call_kernel);
  return {[interpreter](std::vector<at::Tensor>&& args) { return (*interpreter)(std::move(args)); },
          [interpreter](std::vector<at::Tensor>&& args) {
            return interpreter->begin(std::move(args));
          }};
}

BackendTraits traits() {
  BackendTraits traits{.takes_sizes = true};
  // Forwards that read a row and write one, or a number for it.
  for (const char* name : {"aten.native_layer_norm", "aten._softmax", "aten._log_softmax",
                           "aten.logsumexp", "aten.var.correction", "aten.var_mean.correction",
                           "aten.amax", "aten.amin", "aten.sum.dim_IntList", "aten.mean.dim"})
    traits.fused_operators.emplace_back(name);
  return traits;
}

}  // namespace ahead::native
